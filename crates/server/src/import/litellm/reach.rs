//! How a deployment is reached: the provider, its address and where its key is read from.

use serde_json::Value;
use tidegate_providers::platform::{self, Auth, Protocol};

use super::{environment, text};
use crate::import::draft::{Draft, Provider};

/// Servers whose address has no `/v1` there.
const WITHOUT_VERSION: [&str; 2] = ["ollama", "ollama_chat"];

/// Variables that LiteLLM reads a key from by itself, where that is another one than here.
const VARIABLES: [(&str, &str); 4] = [
    ("azure", "AZURE_API_KEY"),
    ("azure_ai", "AZURE_AI_API_KEY"),
    ("github", "GITHUB_API_KEY"),
    ("nvidia_nim", "NVIDIA_NIM_API_KEY"),
];

/// The domains of Azure's resources: the same resource is at all of them.
const AZURES: [&str; 3] = [".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"];

const MESSAGES: &str = "anthropic";
const RESPONSES: &str = "openai-responses";

/// Who is called, and in which protocol where it is not the one that is usual there.
pub(super) struct Reached {
    pub provider: String,
    pub protocol: Option<&'static str>,
}

/// What a deployment is called by.
pub(super) struct Called<'a> {
    pub prefix: &'a str,
    pub slug: &'a str,
    /// The protocol of its servers at other addresses.
    pub protocol: &'static str,
    pub model: &'a str,
    pub is_responses: bool,
}

impl Called<'_> {
    /// The protocol that this deployment speaks, where it is another one than that of its prefix.
    fn other(&self, address: Option<&str>) -> Option<&'static str> {
        let is_claude = self.model.starts_with("claude");
        let speaks_responses =
            || platform::ways(self.slug).any(|way| way.protocol == Protocol::Responses) || self.slug.is_empty();
        match self.prefix {
            _ if address.is_some_and(|address| address.ends_with("/anthropic")) => Some(MESSAGES),
            "azure_ai" if is_claude => Some(MESSAGES),
            // Google's own protocol is for Google's own models.
            "vertex_ai" | "vertex_ai_beta" if is_claude => Some(MESSAGES),
            _ if self.is_responses && speaks_responses() => Some(RESPONSES),
            _ => None,
        }
    }
}

/// The provider of a deployment; none where it cannot be reached.
pub(super) fn provider(name: &str, called: &Called<'_>, params: &Value, draft: &mut Draft) -> Option<Reached> {
    let Called { prefix, slug, .. } = *called;
    let host = |variable: &str| variable.to_lowercase().replace('_', "-");
    let address = address(params).map(|address| match environment(&address) {
        // What stands there is no base_url of ours: more belongs behind it.
        Some(variable) if slug == "azure" => {
            draft.note(format!(
                "{name}: its address was in the variable {variable}; put the first part of its host name into resource"
            ));
            format!("https://{}.openai.azure.com", host(variable))
        }
        Some(variable) => {
            draft.note(format!("{name}: its address was in the variable {variable}; put it into base_url"));
            format!("http://{}.invalid", host(variable))
        }
        None => plain(name, address, draft),
    });
    let address = address.as_deref().map(|address| address.trim_end_matches('/'));
    let other = called.other(address);
    let protocol = other.unwrap_or(called.protocol);
    let mut made = Provider { slug: slug.to_owned(), ..Provider::default() };
    match (slug, address) {
        ("" | "azure", None) => {
            draft.note(format!("{name}: {prefix} without api_base cannot be reached; left out"));
            return None;
        }
        ("azure", Some(address)) => match resource(address) {
            Some(resource) => made.resource = Some(resource),
            None => (made.protocol, made.base_url) = (Some(protocol), Some(address.to_owned())),
        },
        (_, Some(address)) if slug.is_empty() || prefix == "openai" => {
            made.slug = host_slug(address);
            (made.protocol, made.base_url) = (Some(protocol), Some(address.to_owned()));
        }
        (_, Some(address)) => {
            let version = if WITHOUT_VERSION.contains(&prefix) && !address.ends_with("/v1") { "/v1" } else { "" };
            (made.protocol, made.base_url) = (Some(protocol), Some(format!("{address}{version}")));
        }
        (_, None) => {}
    }
    // At its own address it speaks one protocol only.
    let said = other.filter(|_| made.base_url.is_none());
    made.region = text(params, "aws_region_name").or_else(|| text(params, "vertex_location"));
    made.project = text(params, "vertex_project");
    if slug == "amazon-bedrock" && made.base_url.is_none() && made.region.is_none() {
        draft.note(format!("{name}: names no aws_region_name; AWS_REGION holds here, or us-east-1"));
    }
    for named in [&mut made.region, &mut made.project] {
        if let Some(variable) = named.as_deref().and_then(environment) {
            draft.note(format!("{name}: {variable} was read from the environment; put its value in place of the name"));
            *named = Some(variable.to_owned());
        }
    }
    made.api_key = key(name, prefix, &made.slug, params, draft);
    let usual = platform::ways(slug).find(|way| Protocol::parse(protocol) == Some(way.protocol));
    let provider = draft.provider(made, |made| {
        let Some(usual) = usual else { return };
        match made.base_url {
            // All that the platform speaks is there, at addresses that are made of its region and project.
            None => made.platform = Some(usual.slug),
            Some(_) => made.auth = Auth::NAMES.into_iter().find(|name| Auth::parse(name) == Some(usual.auth)),
        }
    });
    Some(Reached { provider, protocol: said })
}

/// An address without what may be secret in it.
fn plain(name: &str, address: String, draft: &mut Draft) -> String {
    let Ok(mut url) = url::Url::parse(&address) else { return address };
    if url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none() {
        return address;
    }
    draft.note(format!("{name}: a user name, a password or a query in its address is not taken over"));
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// Where its key is read from. One that stands in the file is not copied.
fn key(name: &str, prefix: &str, slug: &str, params: &Value, draft: &mut Draft) -> Option<String> {
    let of_cloud = [
        (&["aws_access_key_id", "aws_secret_access_key"][..], r#"{"accessKeyId": …, "secretAccessKey": …}"#),
        (&["vertex_credentials"][..], "the JSON of the service account"),
    ];
    for (members, what) in of_cloud {
        let said: Vec<String> = members.iter().filter_map(|member| params.get(*member)).map(Value::to_string).collect();
        if !said.is_empty() {
            let variable = draft.variable(variable(slug), &said.concat());
            draft.note(format!("{name}: put {what} into {variable}"));
            return Some(format!("env:{variable}"));
        }
    }
    let Some(said) = text(params, "api_key") else {
        let variable = unsaid_variable(prefix, slug, params);
        match (variable, slug) {
            (Some(_), _) => {}
            (None, "amazon-bedrock") => draft.note(format!("{name}: its credentials were the machine's own; AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, are read from the environment here")),
            (None, _) if platform::find(slug).is_some_and(|platform| platform.local) => {}
            (None, _) => draft.note(format!("{name}: names no key; if {slug} wants one, put it into api_key there")),
        }
        return variable.map(|variable| format!("env:{variable}"));
    };
    if let Some(variable) = environment(&said) {
        return Some(format!("env:{variable}"));
    }
    if matches!(said.to_ascii_lowercase().as_str(), "" | "none" | "na" | "dummy" | "fake" | "anything" | "sk-1234") {
        return None;
    }
    let variable = draft.variable(variable(slug), &said);
    draft.note(format!("{name}: its key stood in the file and is not copied; put it into {variable}"));
    Some(format!("env:{variable}"))
}

/// The variable that LiteLLM reads by itself where a deployment names no key. That of OpenAI would go to any address, too,
/// but a key is not sent where nobody wrote that it belongs.
pub(super) fn unsaid_variable(prefix: &str, slug: &str, params: &Value) -> Option<&'static str> {
    let is_elsewhere = prefix == "openai" && address(params).is_some();
    if is_elsewhere || text(params, "api_key").is_some() {
        return None;
    }
    let known = || platform::find(slug).filter(|known| !known.local && known.auth != Auth::Aws)?.env;
    VARIABLES.iter().find(|(named, _)| *named == prefix).map(|(_, variable)| *variable).or_else(known)
}

fn address(params: &Value) -> Option<String> {
    text(params, "api_base").or_else(|| text(params, "base_url"))
}

/// A variable for the key of a provider.
pub(super) fn variable(slug: &str) -> String {
    let word: String = slug
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' })
        .collect();
    // No variable begins with a digit.
    let start = if word.starts_with(|letter: char| letter.is_ascii_digit()) { "KEY_" } else { "" };
    format!("{start}{word}_API_KEY")
}

/// A slug for a server that has no name.
fn host_slug(address: &str) -> String {
    let host = url::Url::parse(address).ok().and_then(|url| {
        let host = url.host_str()?.to_owned();
        Some(url.port().map_or_else(|| host.clone(), |port| format!("{host}-{port}")))
    });
    let slug: String = host
        .unwrap_or_else(|| "own".to_owned())
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' })
        .collect();
    let slug = slug.trim_matches('-').to_owned();
    if slug.is_empty() { "own".to_owned() } else { slug }
}

/// The first part of Azure's host names.
fn resource(address: &str) -> Option<String> {
    let url = url::Url::parse(address).ok()?;
    let host = url.host_str()?;
    let resource = AZURES.iter().find_map(|domain| host.strip_suffix(domain))?;
    (!resource.contains('.')).then(|| resource.to_owned())
}
