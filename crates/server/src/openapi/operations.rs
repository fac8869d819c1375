//! What the route table does not say of an operation: its parameters, its body, its answers. Keyed by method and path;
//! a test holds the two tables together.

/// One operation.
pub struct Description {
    pub method: &'static str,
    pub path: &'static str,
    pub id: &'static str,
    pub tag: &'static str,
    /// Names in `components/parameters`.
    pub parameters: &'static [&'static str],
    pub body: Option<Content>,
    pub success: &'static [Success],
    /// Statuses of errors beyond those that the callers and the body bring with them.
    pub errors: &'static [u16],
    /// Statuses of errors that are told on a page.
    pub error_pages: &'static [u16],
}

/// What is in a body.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// JSON of a schema in `components/schemas`.
    Json(&'static str),
    /// A form of such a schema.
    Form(&'static str),
    /// A form that holds a file.
    Multipart(&'static str),
    /// JSON, or a form that holds a file.
    JsonOrMultipart(&'static str, &'static str),
    /// Bytes of a media type.
    Bytes(&'static str),
    /// JSON, or the same as a stream of events.
    JsonOrEvents(&'static str),
    /// Text of a media type.
    Text(&'static str),
    Nothing,
}

pub struct Success {
    pub status: u16,
    pub content: Content,
    pub text: &'static str,
    /// Names in `components/headers`, beside those that every answer has.
    pub headers: &'static [&'static str],
}

const fn ok(schema: &'static str) -> Success {
    Success { status: 200, content: Content::Json(schema), text: "Success", headers: &[] }
}

const fn created(schema: &'static str) -> Success {
    Success { status: 201, content: Content::Json(schema), text: "Created", headers: &[] }
}

const fn text(media: &'static str) -> Success {
    Success { status: 200, content: Content::Text(media), text: "Success", headers: &[] }
}

const HTML: &str = "text/html";

const IMAGES: &[Success] = &[Success {
    status: 200,
    content: Content::JsonOrEvents("ImageGenerationResponse"),
    text: "The images, or events with them when `stream` is true",
    headers: &["GenerationId"],
}];

impl Description {
    const fn new(
        method: &'static str,
        path: &'static str,
        id: &'static str,
        tag: &'static str,
        success: &'static [Success],
    ) -> Self {
        Self { method, path, id, tag, parameters: &[], body: None, success, errors: &[], error_pages: &[] }
    }

    const fn with(mut self, parameters: &'static [&'static str]) -> Self {
        self.parameters = parameters;
        self
    }

    const fn taking(mut self, body: Content) -> Self {
        self.body = Some(body);
        self
    }

    const fn failing(mut self, errors: &'static [u16]) -> Self {
        self.errors = errors;
        self
    }

    const fn failing_on_a_page(mut self, errors: &'static [u16]) -> Self {
        self.error_pages = errors;
        self
    }
}

const DELETED: &[Success] = &[ok("Deleted")];
/// What a list of models can be asked for; the page comes first.
const MODELS: &[&str] = &[
    "Offset",
    "ModelsLimit",
    "ModelsSort",
    "Words",
    "ModelsCategory",
    "ModelsParameters",
    "ModelsInput",
    "ModelsOutput",
    "ModelsContext",
    "ModelsArch",
    "ModelsAuthors",
    "ModelsProviders",
    "ModelsDistillable",
    "ModelsZdr",
    "ModelsRegion",
    "ModelsMinPrice",
    "ModelsMaxPrice",
    "ModelsMinOutputPrice",
    "ModelsMaxOutputPrice",
    "ModelsMinAge",
    "ModelsMaxAge",
];
const PAGE: &[&str] = &["Offset", "Limit"];
const RELAYED: &[u16] = &[402, 404, 502, 504, 529];
const SEE_OTHER: Success =
    Success { status: 303, content: Content::Nothing, text: "Go on there", headers: &["Location"] };
/// With a word of warning where there is reason for one.
const WARNED: Success =
    Success { status: 200, content: Content::Json("CredentialAnswer"), text: "OK", headers: &["Warnings"] };
const SIGNED: Success =
    Success { status: 303, content: Content::Nothing, text: "Back to the page", headers: &["Location", "Set-Cookie"] };

const FILE: &[&str] = &["FileId", "FileWorkspace", "FileShape"];

use Content::{Form, Json};

pub static DESCRIPTIONS: &[Description] = &[
    Description::new(
        "POST",
        "/messages",
        "createMessage",
        "Messages",
        &[Success {
            status: 200,
            content: Content::JsonOrEvents("Message"),
            text: "The message, or its events when `stream` is true",
            headers: &["GenerationId"],
        }],
    )
    .taking(Json("MessagesRequest"))
    .failing(RELAYED),
    Description::new("POST", "/messages/count_tokens", "countTokens", "Messages", &[ok("TokenCount")])
        .taking(Json("CountTokensRequest"))
        .failing(&[404]),
    Description::new(
        "POST",
        "/chat/completions",
        "createChatCompletion",
        "Messages",
        &[Success {
            status: 200,
            content: Content::JsonOrEvents("ChatCompletion"),
            text: "The completion, or its chunks when `stream` is true",
            headers: &["GenerationId"],
        }],
    )
    .taking(Json("ChatRequest"))
    .failing(RELAYED),
    Description::new(
        "POST",
        "/responses",
        "createResponse",
        "Messages",
        &[Success {
            status: 200,
            content: Content::JsonOrEvents("Response"),
            text: "The response, or its events when `stream` is true",
            headers: &["GenerationId"],
        }],
    )
    .taking(Json("ResponsesRequest"))
    .failing(RELAYED),
    Description::new(
        "POST",
        "/embeddings",
        "createEmbeddings",
        "Embeddings",
        &[Success {
            status: 200,
            content: Content::Json("EmbeddingsResponse"),
            text: "A vector for each input",
            headers: &["GenerationId"],
        }],
    )
    .taking(Json("EmbeddingsRequest"))
    .failing(RELAYED),
    Description::new("GET", "/embeddings/models", "listEmbeddingsModels", "Embeddings", &[ok("ModelsPage")])
        .with(MODELS)
        .failing(&[400]),
    Description::new(
        "POST",
        "/rerank",
        "createRerank",
        "Rerank",
        &[Success {
            status: 200,
            content: Content::Json("RerankResponse"),
            text: "The documents, the best first",
            headers: &["GenerationId"],
        }],
    )
    .taking(Json("RerankRequest"))
    .failing(RELAYED),
    Description::new(
        "POST",
        "/audio/speech",
        "createAudioSpeech",
        "Audio",
        &[Success {
            status: 200,
            content: Content::Bytes("audio/*"),
            text: "The sound, in the format that was asked for",
            headers: &["GenerationId"],
        }],
    )
    .taking(Json("SpeechRequest"))
    .failing(RELAYED),
    Description::new(
        "POST",
        "/audio/transcriptions",
        "createAudioTranscriptions",
        "Audio",
        &[Success {
            status: 200,
            content: Content::Json("Transcript"),
            text: "What is said",
            headers: &["GenerationId"],
        }],
    )
    .taking(Content::JsonOrMultipart("TranscriptionRequest", "TranscriptionForm"))
    .failing(RELAYED),
    Description::new("POST", "/images", "createImages", "Images", IMAGES)
        .taking(Json("ImageGenerationRequest"))
        .failing(RELAYED),
    Description::new("POST", "/images/generations", "generateImages", "Images", IMAGES)
        .taking(Json("ImageGenerationRequest"))
        .failing(RELAYED),
    Description::new("GET", "/images/models", "listImageModels", "Images", &[ok("ImageModelList")]),
    Description::new(
        "GET",
        "/images/models/{author}/{slug}/endpoints",
        "listImageModelEndpoints",
        "Images",
        &[ok("ImageModelEndpoints")],
    )
    .with(&["Author", "ModelSlug"])
    .failing(&[404]),
    Description::new("POST", "/auth/keys", "exchangeAuthorizationCode", "Authorization", &[ok("ExchangedKey")])
        .taking(Json("ExchangeCode"))
        .failing(&[403, 429, 503]),
    Description::new(
        "POST",
        "/auth/keys/code",
        "createAuthorizationCode",
        "Authorization",
        &[Success {
            status: 200,
            content: Json("AuthorizationCodeAnswer"),
            text: "The code",
            headers: &["IdempotentReplayed"],
        }],
    )
    .with(&["IdempotencyKey", "ApplicationTitle"])
    .taking(Json("CreateCode"))
    .failing(&[409]),
    Description::new("GET", "/key", "getCurrentKey", "Keys", &[ok("CurrentKeyAnswer")]),
    Description::new("GET", "/auth/key", "getCurrentKeyByOldName", "Keys", &[ok("CurrentKeyAnswer")]),
    Description::new("GET", "/keys", "listKeys", "Keys", &[ok("KeyList")])
        .with(&["Offset", "IncludeDisabled", "WorkspaceOfKeys"])
        .failing(&[400]),
    Description::new("POST", "/keys", "createKey", "Keys", &[created("CreatedKey")]).taking(Json("CreateKey")),
    Description::new("GET", "/keys/{hash}", "getKey", "Keys", &[ok("KeyAnswer")]).with(&["KeyHash"]).failing(&[404]),
    Description::new("PATCH", "/keys/{hash}", "updateKey", "Keys", &[ok("KeyAnswer")])
        .with(&["KeyHash"])
        .taking(Json("UpdateKey"))
        .failing(&[404]),
    Description::new("DELETE", "/keys/{hash}", "deleteKey", "Keys", DELETED).with(&["KeyHash"]).failing(&[404]),
    Description::new("GET", "/models", "getModels", "Models", &[ok("ModelsPage")]).with(MODELS).failing(&[400]),
    Description::new("GET", "/models/count", "listModelsCount", "Models", &[ok("ModelsCount")])
        .with(MODELS.split_at(3).1)
        .failing(&[400]),
    Description::new("GET", "/models/user", "listModelsUser", "Models", &[ok("ModelsPage")])
        .with(MODELS)
        .failing(&[400]),
    Description::new("GET", "/model/{author}/{slug}", "getModel", "Models", &[ok("ModelAnswer")])
        .with(&["Author", "ModelSlug"])
        .failing(&[404]),
    Description::new("GET", "/models/{author}/{slug}", "retrieveModel", "Models", &[ok("RetrievedModel")])
        .with(&["Author", "ModelSlug"])
        .failing(&[404]),
    Description::new("GET", "/models/{author}/{slug}/endpoints", "listEndpoints", "Models", &[ok("EndpointsAnswer")])
        .with(&["Author", "ModelSlug"])
        .failing(&[404]),
    Description::new("GET", "/endpoints/zdr", "listEndpointsZdr", "Models", &[ok("ForgetfulEndpoints")]),
    Description::new("GET", "/providers", "listProviders", "Models", &[ok("ProvidersAnswer")]),
    Description::new("POST", "/explain", "explainRequest", "Models", &[ok("ExplainAnswer")])
        .taking(Json("ExplainRequest"))
        .failing(&[404]),
    Description::new("POST", "/reload", "reloadConfiguration", "Operation", &[ok("Reloaded")]).failing(&[400]),
    Description::new("GET", "/audit", "listAudit", "Operation", &[ok("AuditList")])
        .with(&["Offset", "Limit", "AuditSince"])
        .failing(&[400]),
    Description::new("GET", "/generation", "getGeneration", "Generations", &[ok("GenerationAnswer")])
        .with(&["GenerationRef"])
        .failing(&[400, 404]),
    Description::new("GET", "/generation/content", "listGenerationContent", "Generations", &[ok("ContentAnswer")])
        .with(&["GenerationRef"])
        .failing(&[400, 404]),
    Description::new("DELETE", "/generation/content", "deleteGenerationContent", "Generations", DELETED)
        .with(&["GenerationRef"])
        .failing(&[400, 404]),
    Description::new(
        "POST",
        "/generation/feedback",
        "submitGenerationFeedback",
        "Generations",
        &[ok("FeedbackAnswer")],
    )
    .taking(Json("SubmitFeedback"))
    .failing(&[404]),
    Description::new("GET", "/activity", "getActivity", "Activity", &[ok("ActivityAnswer")])
        .with(&["ActivityDate", "ActivityKey", "ActivityUser", "ActivityWorkspace", "ActivityGroup"])
        .failing(&[400]),
    Description::new("GET", "/analytics/meta", "getAnalyticsMeta", "Activity", &[ok("AnalyticsMeta")]),
    Description::new("POST", "/analytics/query", "queryAnalytics", "Activity", &[ok("AnalyticsAnswer")])
        .taking(Json("AnalyticsQuery"))
        .failing(&[408]),
    Description::new("GET", "/credits", "getCredits", "Credits", &[ok("CreditsAnswer")]),
    Description::new("GET", "/credits/grants", "listGrants", "Credits", &[ok("GrantList")]).with(PAGE).failing(&[400]),
    Description::new(
        "POST",
        "/credits/grants",
        "grantCredits",
        "Credits",
        &[Success { status: 201, content: Json("GrantAnswer"), text: "Granted", headers: &["IdempotentReplayed"] }],
    )
    .with(&["IdempotencyKey"])
    .taking(Json("GrantCredits"))
    .failing(&[409]),
    Description::new("GET", "/guardrails", "listGuardrails", "Guardrails", &[ok("GuardrailList")])
        .with(&["Offset", "Limit", "WorkspaceOfGuardrails"])
        .failing(&[400]),
    Description::new("POST", "/guardrails", "createGuardrail", "Guardrails", &[created("GuardrailAnswer")])
        .taking(Json("CreateGuardrail")),
    Description::new("GET", "/guardrails/{id}", "getGuardrail", "Guardrails", &[ok("GuardrailAnswer")])
        .with(&["GuardrailId"])
        .failing(&[404]),
    Description::new("PATCH", "/guardrails/{id}", "updateGuardrail", "Guardrails", &[ok("GuardrailAnswer")])
        .with(&["GuardrailId"])
        .taking(Json("UpdateGuardrail"))
        .failing(&[404, 409]),
    Description::new("DELETE", "/guardrails/{id}", "deleteGuardrail", "Guardrails", DELETED)
        .with(&["GuardrailId"])
        .failing(&[404]),
    Description::new(
        "GET",
        "/guardrails/assignments/keys",
        "listKeyAssignments",
        "Guardrails",
        &[ok("KeyAssignmentList")],
    )
    .with(PAGE),
    Description::new(
        "GET",
        "/guardrails/assignments/members",
        "listMemberAssignments",
        "Guardrails",
        &[ok("MemberAssignmentList")],
    )
    .with(PAGE),
    Description::new(
        "GET",
        "/guardrails/{id}/assignments/keys",
        "listGuardrailKeyAssignments",
        "Guardrails",
        &[ok("KeyAssignmentList")],
    )
    .with(&["GuardrailId", "Offset", "Limit"])
    .failing(&[404]),
    Description::new(
        "POST",
        "/guardrails/{id}/assignments/keys",
        "bulkAssignKeysToGuardrail",
        "Guardrails",
        &[ok("AssignedCount")],
    )
    .with(&["GuardrailId"])
    .taking(Json("KeyHashes"))
    .failing(&[404]),
    Description::new(
        "POST",
        "/guardrails/{id}/assignments/keys/remove",
        "bulkUnassignKeysFromGuardrail",
        "Guardrails",
        &[ok("UnassignedCount")],
    )
    .with(&["GuardrailId"])
    .taking(Json("KeyHashes"))
    .failing(&[404]),
    Description::new(
        "GET",
        "/guardrails/{id}/assignments/members",
        "listGuardrailMemberAssignments",
        "Guardrails",
        &[ok("MemberAssignmentList")],
    )
    .with(&["GuardrailId", "Offset", "Limit"])
    .failing(&[404]),
    Description::new(
        "POST",
        "/guardrails/{id}/assignments/members",
        "bulkAssignMembersToGuardrail",
        "Guardrails",
        &[ok("AssignedCount")],
    )
    .with(&["GuardrailId"])
    .taking(Json("MemberUserIds"))
    .failing(&[404]),
    Description::new(
        "POST",
        "/guardrails/{id}/assignments/members/remove",
        "bulkUnassignMembersFromGuardrail",
        "Guardrails",
        &[ok("UnassignedCount")],
    )
    .with(&["GuardrailId"])
    .taking(Json("MemberUserIds"))
    .failing(&[404]),
    Description::new(
        "GET",
        "/observability/destinations",
        "listObservabilityDestinations",
        "Observability",
        &[ok("DestinationList")],
    )
    .with(&["Offset", "Limit", "WorkspaceOfGuardrails"])
    .failing(&[400]),
    Description::new(
        "POST",
        "/observability/destinations",
        "createObservabilityDestination",
        "Observability",
        &[created("DestinationAnswer")],
    )
    .with(&["SkipTest"])
    .taking(Json("CreateDestination"))
    .failing(&[409]),
    Description::new(
        "GET",
        "/observability/destinations/{id}",
        "getObservabilityDestination",
        "Observability",
        &[ok("DestinationAnswer")],
    )
    .with(&["DestinationId"])
    .failing(&[404]),
    Description::new(
        "GET",
        "/observability/destinations/{id}/status",
        "getObservabilityDestinationStatus",
        "Observability",
        &[ok("DestinationStatus")],
    )
    .with(&["DestinationId"])
    .failing(&[404]),
    Description::new(
        "PATCH",
        "/observability/destinations/{id}",
        "updateObservabilityDestination",
        "Observability",
        &[ok("DestinationAnswer")],
    )
    .with(&["DestinationId", "SkipTest"])
    .taking(Json("UpdateDestination"))
    .failing(&[404, 409]),
    Description::new(
        "DELETE",
        "/observability/destinations/{id}",
        "deleteObservabilityDestination",
        "Observability",
        DELETED,
    )
    .with(&["DestinationId"])
    .failing(&[404]),
    Description::new("GET", "/presets", "listPresets", "Presets", &[ok("PresetList")]).with(PAGE).failing(&[400]),
    Description::new("GET", "/presets/{slug}", "getPreset", "Presets", &[ok("PresetAnswer")])
        .with(&["PresetSlug"])
        .failing(&[400, 404]),
    Description::new("POST", "/presets/{slug}/messages", "createPresetsMessages", "Presets", &[ok("PresetAnswer")])
        .with(&["PresetSlug"])
        .taking(Json("PresetRequest"))
        .failing(&[404, 409]),
    Description::new(
        "POST",
        "/presets/{slug}/chat/completions",
        "createPresetsChatCompletions",
        "Presets",
        &[ok("PresetAnswer")],
    )
    .with(&["PresetSlug"])
    .taking(Json("ChatRequest"))
    .failing(&[404, 409]),
    Description::new("POST", "/presets/{slug}/responses", "createPresetsResponses", "Presets", &[ok("PresetAnswer")])
        .with(&["PresetSlug"])
        .taking(Json("ResponsesRequest"))
        .failing(&[404, 409]),
    Description::new("GET", "/presets/{slug}/versions", "listPresetVersions", "Presets", &[ok("PresetVersionList")])
        .with(&["PresetSlug", "Offset", "Limit"])
        .failing(&[400, 404]),
    Description::new(
        "GET",
        "/presets/{slug}/versions/{version}",
        "getPresetVersion",
        "Presets",
        &[ok("PresetVersionAnswer")],
    )
    .with(&["PresetSlug", "PresetVersion"])
    .failing(&[400, 404]),
    Description::new("GET", "/files", "listFiles", "Files", &[ok("FileList")])
        .with(&[
            "FilesLimit",
            "FilesCursor",
            "FilesAfter",
            "FilesAfterId",
            "FilesPage",
            "FilesBeforeId",
            "FilesOrder",
            "FileWorkspace",
            "FileShape",
        ])
        .failing(&[400]),
    Description::new("POST", "/files", "uploadFile", "Files", &[ok("File")])
        .with(&["FileWorkspace", "FileShape"])
        .taking(Content::Multipart("FileUpload")),
    Description::new("GET", "/files/{file_id}", "getFileMetadata", "Files", &[ok("File")])
        .with(FILE)
        .failing(&[400, 404]),
    Description::new("DELETE", "/files/{file_id}", "deleteFile", "Files", &[ok("FileDeleted")])
        .with(FILE)
        .failing(&[400, 404]),
    Description::new(
        "GET",
        "/files/{file_id}/content",
        "downloadFileContent",
        "Files",
        &[text("application/octet-stream")],
    )
    .with(FILE)
    .failing(&[400, 404]),
    Description::new("GET", "/files/{file_id}/signed", "downloadSignedFile", "Files", &[text("image/png")])
        .with(&["FileId", "SignedExpires", "SignedSignature"])
        .failing(&[404, 503]),
    Description::new("GET", "/workspaces", "listWorkspaces", "Workspaces", &[ok("WorkspaceList")]).with(PAGE),
    Description::new("POST", "/workspaces", "createWorkspace", "Workspaces", &[created("WorkspaceAnswer")])
        .taking(Json("CreateWorkspace")),
    Description::new("GET", "/workspaces/{id}", "getWorkspace", "Workspaces", &[ok("WorkspaceAnswer")])
        .with(&["WorkspaceRef"])
        .failing(&[404]),
    Description::new("PATCH", "/workspaces/{id}", "updateWorkspace", "Workspaces", &[ok("WorkspaceAnswer")])
        .with(&["WorkspaceRef"])
        .taking(Json("UpdateWorkspace"))
        .failing(&[404]),
    Description::new("DELETE", "/workspaces/{id}", "deleteWorkspace", "Workspaces", DELETED)
        .with(&["WorkspaceRef"])
        .failing(&[400, 404]),
    Description::new(
        "GET",
        "/workspaces/{id}/members",
        "listWorkspaceMembers",
        "Workspaces",
        &[ok("WorkspaceMemberList")],
    )
    .with(&["WorkspaceRef", "Offset", "Limit"])
    .failing(&[404]),
    Description::new(
        "POST",
        "/workspaces/{id}/members/add",
        "addWorkspaceMembers",
        "Workspaces",
        &[ok("AddedMembers")],
    )
    .with(&["WorkspaceRef"])
    .taking(Json("MemberIds"))
    .failing(&[404]),
    Description::new(
        "POST",
        "/workspaces/{id}/members/remove",
        "removeWorkspaceMembers",
        "Workspaces",
        &[ok("RemovedMembers")],
    )
    .with(&["WorkspaceRef"])
    .taking(Json("MemberIds"))
    .failing(&[404]),
    Description::new("GET", "/workspaces/{id}/budgets", "listBudgets", "Workspaces", &[ok("BudgetList")])
        .with(&["WorkspaceRef"])
        .failing(&[404]),
    Description::new("GET", "/workspaces/{id}/budgets/{interval}", "getBudget", "Workspaces", &[ok("BudgetAnswer")])
        .with(&["WorkspaceRef", "Interval"])
        .failing(&[400, 404]),
    Description::new("PUT", "/workspaces/{id}/budgets/{interval}", "putBudget", "Workspaces", &[ok("PutBudgetAnswer")])
        .with(&["WorkspaceRef", "Interval"])
        .taking(Json("PutBudget"))
        .failing(&[404]),
    Description::new("DELETE", "/workspaces/{id}/budgets/{interval}", "deleteBudget", "Workspaces", DELETED)
        .with(&["WorkspaceRef", "Interval"])
        .failing(&[400, 404]),
    Description::new("GET", "/workspaces/{id}/plugins", "listWorkspacePlugins", "Workspaces", &[ok("PluginList")])
        .with(&["WorkspaceRef"])
        .failing(&[404]),
    Description::new(
        "PUT",
        "/workspaces/{id}/plugins/{plugin_id}",
        "putWorkspacePlugin",
        "Workspaces",
        &[ok("PluginAnswer")],
    )
    .with(&["WorkspaceRef", "PluginId"])
    .taking(Json("PutPlugin"))
    .failing(&[404]),
    Description::new("DELETE", "/workspaces/{id}/plugins/{plugin_id}", "deleteWorkspacePlugin", "Workspaces", DELETED)
        .with(&["WorkspaceRef", "PluginId"])
        .failing(&[400, 404]),
    Description::new("GET", "/organization/members", "listMembers", "Workspaces", &[ok("MemberList")]).with(PAGE),
    Description::new("GET", "/byok", "listCredentials", "Credentials", &[ok("CredentialList")])
        .with(&["Offset", "Limit", "WorkspaceOfCredentials", "Provider"])
        .failing(&[400]),
    Description::new(
        "POST",
        "/byok",
        "createCredential",
        "Credentials",
        &[Success { status: 201, content: Json("CredentialAnswer"), text: "Created", headers: &["Warnings"] }],
    )
    .taking(Json("CreateCredential")),
    Description::new("GET", "/byok/{id}", "getCredential", "Credentials", &[WARNED])
        .with(&["CredentialId"])
        .failing(&[404]),
    Description::new("PATCH", "/byok/{id}", "updateCredential", "Credentials", &[WARNED])
        .with(&["CredentialId"])
        .taking(Json("UpdateCredential"))
        .failing(&[404]),
    Description::new("DELETE", "/byok/{id}", "deleteCredential", "Credentials", DELETED)
        .with(&["CredentialId"])
        .failing(&[404]),
    Description::new("GET", "/openapi.json", "getInterface", "Operation", &[ok("Interface")]),
    Description::new("GET", "/", "home", "Pages", &[text(HTML)]),
    Description::new("GET", "/auth", "showAuthorization", "Pages", &[text(HTML)])
        .with(&[
            "CallbackUrl",
            "CodeChallenge",
            "CodeChallengeMethod",
            "KeyLabel",
            "SpendLimit",
            "UsageLimitType",
            "ExpiresAt",
            "TargetWorkspace",
            "State",
            "SpawnAgent",
            "SpawnCloud",
        ])
        .failing_on_a_page(&[400]),
    Description::new("POST", "/auth/sign-in", "signIn", "Pages", &[SIGNED])
        .taking(Form("SignInForm"))
        .failing_on_a_page(&[400, 401, 403, 429, 500, 503]),
    Description::new("POST", "/auth/sign-out", "signOut", "Pages", &[SIGNED])
        .taking(Form("SignOutForm"))
        .failing_on_a_page(&[403]),
    Description::new(
        "POST",
        "/auth/authorize",
        "authorize",
        "Pages",
        &[
            SEE_OTHER,
            Success {
                status: 200,
                content: Content::Text(HTML),
                text: "Without a callback: the code, or the word that there is none",
                headers: &[],
            },
        ],
    )
    .taking(Form("AuthorizeForm"))
    .failing_on_a_page(&[400, 401, 403, 409]),
    Description::new("GET", "/dashboard", "showOverview", "Pages", &[text(HTML)]),
    Description::new("POST", "/dashboard/sign-in", "signInToDashboard", "Pages", &[SIGNED])
        .taking(Form("DashboardSignInForm"))
        .failing_on_a_page(&[400, 401, 403, 429, 500, 503]),
    Description::new("POST", "/dashboard/sign-out", "signOutOfDashboard", "Pages", &[SIGNED])
        .taking(Form("DashboardForm"))
        .failing_on_a_page(&[401, 403]),
    Description::new("GET", "/dashboard/oidc", "signInWithIssuer", "Pages", &[SEE_OTHER])
        .failing_on_a_page(&[400, 404, 502]),
    Description::new("GET", "/dashboard/oidc/callback", "comeBackFromIssuer", "Pages", &[SIGNED])
        .failing_on_a_page(&[400, 403, 404, 429, 500, 503]),
    Description::new("GET", "/dashboard/requests", "showRequests", "Pages", &[text(HTML)]),
    Description::new("GET", "/dashboard/requests/{id}", "showRequest", "Pages", &[text(HTML)])
        .with(&["GenerationId"])
        .failing_on_a_page(&[404]),
    Description::new("GET", "/dashboard/keys", "showKeys", "Pages", &[text(HTML)]),
    Description::new("POST", "/dashboard/keys", "changeKeys", "Pages", &[SEE_OTHER, text(HTML)])
        .taking(Form("DashboardForm"))
        .failing_on_a_page(&[400, 401, 403, 404]),
    Description::new("GET", "/dashboard/budgets", "showBudgets", "Pages", &[text(HTML)]),
    Description::new("POST", "/dashboard/budgets", "changeBudgets", "Pages", &[SEE_OTHER])
        .taking(Form("DashboardForm"))
        .failing_on_a_page(&[400, 401, 403, 404]),
    Description::new("GET", "/dashboard/byok", "showCredentials", "Pages", &[text(HTML)]),
    Description::new("POST", "/dashboard/byok", "changeCredentials", "Pages", &[SEE_OTHER])
        .taking(Form("DashboardForm"))
        .failing_on_a_page(&[400, 401, 403, 404]),
    Description::new("GET", "/dashboard/models", "showModels", "Pages", &[text(HTML)]),
    Description::new("GET", "/dashboard/destinations", "showDestinations", "Pages", &[text(HTML)]),
    Description::new("POST", "/dashboard/destinations", "testDestination", "Pages", &[text(HTML)])
        .taking(Form("DashboardForm"))
        .failing_on_a_page(&[400, 401, 403, 404]),
    Description::new("GET", "/dashboard/members", "showMembers", "Pages", &[text(HTML)]),
    Description::new("POST", "/dashboard/members", "changeMembers", "Pages", &[SEE_OTHER])
        .taking(Form("DashboardForm"))
        .failing_on_a_page(&[400, 401, 403, 404]),
    Description::new("GET", "/dashboard/playground", "showPlayground", "Pages", &[text(HTML)]),
    Description::new("GET", "/docs/errors", "showErrors", "Pages", &[text(HTML)]),
    Description::new("GET", "/assets/page.css", "pageStyle", "Pages", &[text("text/css")]),
    Description::new("GET", "/assets/copy.js", "copyScript", "Pages", &[text("text/javascript")]),
    Description::new("GET", "/assets/icon.svg", "pageIcon", "Pages", &[text("image/svg+xml")]),
    Description::new("GET", "/assets/dashboard.css", "dashboardStyle", "Pages", &[text("text/css")]),
    Description::new("GET", "/assets/dashboard.js", "dashboardScript", "Pages", &[text("text/javascript")]),
    Description::new("GET", "/assets/playground.js", "playgroundScript", "Pages", &[text("text/javascript")]),
    Description::new("GET", "/healthz", "isAlive", "Operation", &[ok("Health")]),
    Description::new(
        "GET",
        "/readyz",
        "isReady",
        "Operation",
        &[
            ok("Readiness"),
            Success { status: 503, content: Json("Readiness"), text: "Not ready; the checks say why", headers: &[] },
        ],
    ),
    Description::new("GET", "/version", "getVersion", "Operation", &[ok("Version")]),
    Description::new("GET", "/metrics", "getMetrics", "Operation", &[text("application/openmetrics-text")]),
];

/// The description of a route.
pub fn find(method: &str, path: &str) -> Option<&'static Description> {
    DESCRIPTIONS.iter().find(|description| description.method == method && description.path == path)
}
