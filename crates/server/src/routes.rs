//! Every operation of the server in one table: method, path, who may call it, how its errors look. The router is made
//! from this table and nothing else, so a route without a declaration cannot exist and what is not listed is refused.

use http::Method;
use tidegate_gateway::overload::Level;

use crate::api::{
    activity, analytics, assignments, audio, audit, auth_codes, budgets, byok, content, credits, destinations,
    embeddings, endpoints, explain, feedback, files, generation, guardrails, health, images, key, keys, members,
    messages, models, pages, plugins, presets, reload, rerank, workspaces,
};
use crate::pages::{assets, authorize, dashboard, errors, oidc};
use crate::router::Handler;

/// Who may call an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    Anyone,
    Inference,
    Management,
    /// Either kind of key.
    Both,
}

/// Where an operation is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mount {
    /// At the root of the site.
    Site,
    /// Under `/api/v1`, and under `/v1` for clients whose base address ends before it.
    Api,
}

/// The form of an operation's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    Messages,
    /// What calls a model in another format.
    Inference,
    General,
}

pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub mount: Mount,
    pub callers: Callers,
    pub surface: Surface,
    /// Whether pages of other origins may call it from a browser.
    pub cors: bool,
    /// From which level of overload on it is refused; most are not.
    pub shed_at: Option<Level>,
    pub summary: &'static str,
    pub handler: Handler,
}

const fn api(method: Method, path: &'static str, callers: Callers, summary: &'static str, handler: Handler) -> Route {
    Route {
        method,
        path,
        mount: Mount::Api,
        callers,
        surface: Surface::General,
        cors: false,
        shed_at: None,
        summary,
        handler,
    }
}

/// For management keys alone.
const fn managed(method: Method, path: &'static str, summary: &'static str, handler: Handler) -> Route {
    api(method, path, Callers::Management, summary, handler)
}

const fn site(path: &'static str, callers: Callers, summary: &'static str, handler: Handler) -> Route {
    Route {
        method: Method::GET,
        path,
        mount: Mount::Site,
        callers,
        surface: Surface::General,
        cors: false,
        shed_at: None,
        summary,
        handler,
    }
}

/// What a page of ours sends.
const fn form(path: &'static str, summary: &'static str, handler: Handler) -> Route {
    let (method, mount, callers, surface) = (Method::POST, Mount::Site, Callers::Anyone, Surface::General);
    Route { method, path, mount, callers, surface, cors: false, shed_at: None, summary, handler }
}

/// For anyone, pages of other origins included.
const fn open(path: &'static str, summary: &'static str, handler: Handler) -> Route {
    let (method, mount, callers, surface) = (Method::POST, Mount::Api, Callers::Anyone, Surface::General);
    Route { method, path, mount, callers, surface, cors: true, shed_at: None, summary, handler }
}

/// For anyone who has the address; it proves itself.
const fn shared(path: &'static str, summary: &'static str, handler: Handler) -> Route {
    api(Method::GET, path, Callers::Anyone, summary, handler)
}

const fn inference(path: &'static str, summary: &'static str, handler: Handler) -> Route {
    let (mount, callers, surface) = (Mount::Api, Callers::Inference, Surface::Messages);
    let shed_at = Some(Level::Inference);
    Route { method: Method::POST, path, mount, callers, surface, cors: false, shed_at, summary, handler }
}

/// The same with errors in the general envelope.
const fn made(path: &'static str, summary: &'static str, handler: Handler) -> Route {
    let mut route = inference(path, summary, handler);
    route.surface = Surface::Inference;
    route
}

impl Route {
    /// A list: much work that can wait.
    const fn list(mut self) -> Self {
        self.shed_at = Some(Level::Reads);
        self
    }

    /// Holds a whole file in memory, and can wait as well.
    const fn large(self) -> Self {
        self.list()
    }
}

/// For inference keys, with errors as account operations have them.
const fn own(method: Method, path: &'static str, summary: &'static str, handler: Handler) -> Route {
    api(method, path, Callers::Inference, summary, handler)
}

pub static ROUTES: &[Route] = &[
    inference("/messages", "Create a message, streamed or not", messages::create),
    made("/chat/completions", "Create a message in the chat format, streamed or not", messages::complete),
    made("/responses", "Create a message in the Responses format, streamed or not", messages::respond),
    inference("/messages/count_tokens", "Count input tokens without generating", messages::count_tokens),
    made("/embeddings", "Make embeddings", embeddings::create),
    api(Method::GET, "/embeddings/models", Callers::Both, "List the models that make embeddings", models::embedding)
        .list(),
    made("/rerank", "Rank documents by what they have to do with a query", rerank::create),
    made("/audio/speech", "Speak a text", audio::speech),
    made("/audio/transcriptions", "Write down what is said", audio::transcriptions),
    made("/images", "Make images", images::create),
    made("/images/generations", "Make images, as OpenAI's clients ask for them", images::create_as_openai),
    api(Method::GET, "/images/models", Callers::Both, "List the models that make images", images::models).list(),
    api(
        Method::GET,
        "/images/models/{author}/{slug}/endpoints",
        Callers::Both,
        "Who makes the images of a model",
        images::endpoints,
    )
    .list(),
    open("/auth/keys", "Exchange an authorization code for a key", auth_codes::exchange),
    api(Method::POST, "/auth/keys/code", Callers::Management, "Create an authorization code", auth_codes::create),
    api(Method::GET, "/key", Callers::Both, "The key that calls", key::show),
    api(
        Method::GET,
        "/auth/key",
        Callers::Both,
        "The key that calls, under the name that older clients know",
        key::show,
    ),
    managed(Method::GET, "/keys", "List inference keys, newest first", keys::list).list(),
    managed(Method::POST, "/keys", "Create an inference key", keys::create),
    managed(Method::GET, "/keys/{hash}", "One inference key", keys::show),
    managed(Method::PATCH, "/keys/{hash}", "Change an inference key", keys::update),
    managed(Method::DELETE, "/keys/{hash}", "Delete an inference key", keys::delete),
    api(Method::GET, "/generation", Callers::Both, "The record of a finished request", generation::show),
    api(
        Method::GET,
        "/generation/content",
        Callers::Both,
        "What was said in a request, where it is kept",
        content::show,
    ),
    managed(Method::DELETE, "/generation/content", "Delete what was said in a request", content::delete),
    managed(Method::POST, "/generation/feedback", "Say something about an answer", feedback::create),
    managed(Method::GET, "/activity", "What was asked for and spent, by day and model", activity::show).list(),
    managed(Method::GET, "/analytics/meta", "What can be asked about finished requests", analytics::meta),
    managed(Method::POST, "/analytics/query", "Figures about finished requests", analytics::query).list(),
    managed(Method::GET, "/credits", "What the account has and has used", credits::show),
    managed(Method::GET, "/credits/grants", "List the credits that were granted, newest first", credits::list).list(),
    managed(Method::POST, "/credits/grants", "Grant credits", credits::grant),
    managed(Method::GET, "/guardrails", "List guardrails, oldest first", guardrails::list).list(),
    managed(Method::POST, "/guardrails", "Create a guardrail", guardrails::create),
    managed(Method::GET, "/guardrails/{id}", "One guardrail", guardrails::show),
    managed(Method::PATCH, "/guardrails/{id}", "Change a guardrail, or a workspace's own", guardrails::update),
    managed(Method::DELETE, "/guardrails/{id}", "Delete a guardrail and what it is assigned to", guardrails::delete),
    managed(Method::GET, "/guardrails/assignments/keys", "Which keys have which guardrail", assignments::list_all_keys)
        .list(),
    managed(
        Method::GET,
        "/guardrails/assignments/members",
        "Which members have which guardrail",
        assignments::list_all_members,
    )
    .list(),
    managed(Method::GET, "/guardrails/{id}/assignments/keys", "The keys of a guardrail", assignments::list_keys).list(),
    managed(Method::POST, "/guardrails/{id}/assignments/keys", "Assign it to keys", assignments::assign_keys),
    managed(Method::POST, "/guardrails/{id}/assignments/keys/remove", "Take it from keys", assignments::unassign_keys),
    managed(
        Method::GET,
        "/guardrails/{id}/assignments/members",
        "The members of a guardrail",
        assignments::list_members,
    )
    .list(),
    managed(Method::POST, "/guardrails/{id}/assignments/members", "Assign it to members", assignments::assign_members),
    managed(
        Method::POST,
        "/guardrails/{id}/assignments/members/remove",
        "Take it from members",
        assignments::unassign_members,
    ),
    managed(Method::GET, "/observability/destinations", "List who is told of requests", destinations::list).list(),
    managed(Method::POST, "/observability/destinations", "Have somebody told of requests", destinations::create),
    managed(Method::GET, "/observability/destinations/{id}", "One destination", destinations::show),
    managed(Method::GET, "/observability/destinations/{id}/status", "How a destination does", destinations::status),
    managed(Method::PATCH, "/observability/destinations/{id}", "Change a destination", destinations::update),
    managed(Method::DELETE, "/observability/destinations/{id}", "Delete a destination", destinations::delete),
    own(Method::GET, "/presets", "List the presets of the key's workspace, last updated first", presets::list).list(),
    own(Method::GET, "/presets/{slug}", "One preset with the version that is used", presets::show),
    own(
        Method::POST,
        "/presets/{slug}/messages",
        "Make a preset of a request, or a new version of it",
        presets::create,
    ),
    own(
        Method::POST,
        "/presets/{slug}/chat/completions",
        "Make a preset of a request in the chat format",
        presets::create_of_chat,
    ),
    own(
        Method::POST,
        "/presets/{slug}/responses",
        "Make a preset of a request in the Responses format",
        presets::create_of_responses,
    ),
    own(Method::GET, "/presets/{slug}/versions", "List the versions of a preset, oldest first", presets::versions)
        .list(),
    own(Method::GET, "/presets/{slug}/versions/{version}", "One version of a preset", presets::version),
    own(Method::GET, "/files", "List the files of the key's workspace", files::list).list(),
    own(Method::POST, "/files", "Keep a file", files::create).large(),
    own(Method::GET, "/files/{file_id}", "One file", files::show),
    own(Method::DELETE, "/files/{file_id}", "Delete a file", files::delete),
    own(Method::GET, "/files/{file_id}/content", "What a file holds", files::content).large(),
    shared("/files/{file_id}/signed", "A file, for whoever has an address that was signed for it", files::signed)
        .large(),
    managed(Method::GET, "/workspaces", "List workspaces", workspaces::list).list(),
    managed(Method::POST, "/workspaces", "Create a workspace", workspaces::create),
    managed(Method::GET, "/workspaces/{id}", "One workspace, by id or slug", workspaces::show),
    managed(Method::PATCH, "/workspaces/{id}", "Change a workspace", workspaces::update),
    managed(Method::DELETE, "/workspaces/{id}", "Delete a workspace without live keys", workspaces::delete),
    managed(Method::GET, "/workspaces/{id}/members", "List the members of a workspace", members::list).list(),
    managed(Method::POST, "/workspaces/{id}/members/add", "Add members to a workspace", members::add),
    managed(Method::POST, "/workspaces/{id}/members/remove", "Remove members from a workspace", members::remove),
    managed(Method::GET, "/workspaces/{id}/budgets", "List the budgets of a workspace", budgets::list).list(),
    managed(Method::GET, "/workspaces/{id}/budgets/{interval}", "One budget of a workspace", budgets::show),
    managed(Method::PUT, "/workspaces/{id}/budgets/{interval}", "Set a budget of a workspace", budgets::put),
    managed(Method::DELETE, "/workspaces/{id}/budgets/{interval}", "Delete a budget of a workspace", budgets::delete),
    managed(Method::GET, "/workspaces/{id}/plugins", "What a workspace sets for plugins", plugins::list).list(),
    managed(Method::PUT, "/workspaces/{id}/plugins/{plugin_id}", "Set a plugin for a workspace", plugins::put),
    managed(Method::DELETE, "/workspaces/{id}/plugins/{plugin_id}", "Take that back", plugins::delete),
    managed(
        Method::GET,
        "/organization/members",
        "List the members of the organisation",
        members::list_of_organisation,
    )
    .list(),
    api(Method::GET, "/models", Callers::Both, "List the models that can be called", models::list).list(),
    api(Method::GET, "/models/count", Callers::Both, "Count them", models::count).list(),
    api(Method::GET, "/models/user", Callers::Both, "List the models that the calling key can call", models::list_own)
        .list(),
    api(Method::GET, "/model/{author}/{slug}", Callers::Both, "One model", models::show),
    api(
        Method::GET,
        "/models/{author}/{slug}",
        Callers::Both,
        "One model, as clients of vendors ask for it",
        models::retrieve,
    ),
    api(Method::GET, "/models/{author}/{slug}/endpoints", Callers::Both, "Who offers a model", endpoints::list).list(),
    api(Method::GET, "/endpoints/zdr", Callers::Both, "List the endpoints that keep nothing", endpoints::forgetful)
        .list(),
    api(Method::GET, "/providers", Callers::Both, "List the providers", models::providers).list(),
    managed(Method::POST, "/explain", "Tell who would serve a request, and why not the others", explain::explain),
    managed(Method::POST, "/reload", "Read the configuration file anew", reload::reload),
    managed(Method::GET, "/audit", "Who changed what, newest first", audit::list).list(),
    managed(Method::GET, "/byok", "List provider credentials in the order in which they are tried", byok::list).list(),
    managed(Method::POST, "/byok", "Store a provider credential", byok::create),
    managed(Method::GET, "/byok/{id}", "One provider credential", byok::show),
    managed(Method::PATCH, "/byok/{id}", "Change a provider credential, or rotate its key", byok::update),
    managed(Method::DELETE, "/byok/{id}", "Delete a provider credential", byok::delete),
    api(Method::GET, "/openapi.json", Callers::Anyone, "This interface as an OpenAPI document", pages::openapi),
    site("/", Callers::Anyone, "What this is and how to call it", pages::home),
    site("/auth", Callers::Anyone, "The page on which a person authorizes an application", authorize::show),
    form("/auth/sign-in", "Sign in with a management key", authorize::sign_in),
    form("/auth/sign-out", "End the session", authorize::sign_out),
    form("/auth/authorize", "Consent to an application, or refuse", authorize::authorize),
    site("/dashboard", Callers::Anyone, "What was spent and asked for", dashboard::overview).list(),
    form("/dashboard/sign-in", "Sign in to the dashboard with a management key", dashboard::sign_in),
    form("/dashboard/sign-out", "End the session", dashboard::sign_out),
    site("/dashboard/oidc", Callers::Anyone, "Sign in with the issuer of people", oidc::start),
    site("/dashboard/oidc/callback", Callers::Anyone, "Come back from there", oidc::back),
    site("/dashboard/requests", Callers::Anyone, "The newest requests", dashboard::requests).list(),
    site("/dashboard/requests/{id}", Callers::Anyone, "The story of a request", dashboard::request).list(),
    site("/dashboard/keys", Callers::Anyone, "Inference keys", dashboard::keys).list(),
    form("/dashboard/keys", "Make or change an inference key", dashboard::change_keys),
    site("/dashboard/budgets", Callers::Anyone, "What workspaces may spend", dashboard::budgets).list(),
    form("/dashboard/budgets", "Change a budget", dashboard::change_budgets),
    site("/dashboard/byok", Callers::Anyone, "Provider credentials", dashboard::credentials).list(),
    form("/dashboard/byok", "Store, change or rotate a provider credential", dashboard::change_credentials),
    site("/dashboard/models", Callers::Anyone, "Models, who offers them and how they do", dashboard::models).list(),
    site("/dashboard/destinations", Callers::Anyone, "Who is told of requests", dashboard::destinations).list(),
    form("/dashboard/destinations", "Try a destination", dashboard::test_destination),
    site("/dashboard/members", Callers::Anyone, "The people of the organisation", dashboard::members).list(),
    form("/dashboard/members", "Add, change or remove a person", dashboard::change_members),
    site("/dashboard/playground", Callers::Anyone, "Ask a model", dashboard::playground),
    site("/docs/errors", Callers::Anyone, "What errors say when nobody can serve a model", errors::show),
    site("/assets/page.css", Callers::Anyone, "The style of the pages", assets::style),
    site("/assets/icon.svg", Callers::Anyone, "The picture by which a browser's tab is known", assets::icon),
    site("/assets/dashboard.css", Callers::Anyone, "The style of the dashboard", assets::board),
    site("/assets/dashboard.js", Callers::Anyone, "The list of requests as it changes", assets::live),
    site("/assets/playground.js", Callers::Anyone, "The playground", assets::playground),
    site("/assets/copy.js", Callers::Anyone, "The button that copies a code", assets::copy),
    site("/healthz", Callers::Anyone, "Whether the process is alive", health::alive),
    site("/readyz", Callers::Anyone, "Whether requests can be served", health::ready),
    site("/version", Callers::Management, "The running build", health::version),
    site("/metrics", Callers::Management, "Metrics in Prometheus' text format", health::metrics),
];

/// The full paths of a route.
pub fn paths(route: &Route) -> Vec<String> {
    match route.mount {
        Mount::Site => vec![route.path.to_owned()],
        Mount::Api => vec![format!("/api/v1{}", route.path), format!("/v1{}", route.path)],
    }
}
