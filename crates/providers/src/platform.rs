//! Known ways to reach a provider. A vendor with other addresses or headers is a row here, not a module.

/// The wire format of an upstream, by its name in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    Messages,
    Chat,
    Responses,
    Gemini,
    Converse,
    Cohere,
}

impl Protocol {
    pub const NAMES: [&str; 6] =
        ["anthropic", "openai-chat", "openai-responses", "gemini", "bedrock-converse", "cohere"];

    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "anthropic" => Self::Messages,
            "openai-chat" => Self::Chat,
            "openai-responses" => Self::Responses,
            "gemini" => Self::Gemini,
            "bedrock-converse" => Self::Converse,
            "cohere" => Self::Cohere,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "anthropic",
            Self::Chat => "openai-chat",
            Self::Responses => "openai-responses",
            Self::Gemini => "gemini",
            Self::Converse => "bedrock-converse",
            Self::Cohere => "cohere",
        }
    }
}

/// How a call in the Messages protocol is wrapped by those who resell the models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carriage {
    /// The protocol as its authors serve it.
    #[default]
    Plain,
    /// The model is in the path, the version in the body, the stream in binary frames.
    BedrockInvoke,
    /// The model is in the path and the version in the body.
    Vertex,
}

/// How the credential travels. Always in a header: a key in a URL ends up in logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Auth {
    /// `x-api-key: <key>`
    ApiKey,
    /// `Authorization: Bearer <key>`
    Bearer,
    /// `x-goog-api-key: <key>`
    GoogleKey,
    /// `api-key: <key>`
    AzureKey,
    /// `x-api-key` and `api-key`, both.
    FoundryKey,
    /// A Bedrock key as a bearer, or a signature over the whole request made with an access key.
    Aws,
    /// A bearer that a service account is given for an hour, or an access token as it is.
    Google,
}

impl Auth {
    pub const NAMES: [&str; 7] =
        ["x-api-key", "bearer", "x-goog-api-key", "api-key", "x-api-key+api-key", "aws", "google"];

    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "x-api-key" => Self::ApiKey,
            "bearer" => Self::Bearer,
            "x-goog-api-key" => Self::GoogleKey,
            "api-key" => Self::AzureKey,
            "x-api-key+api-key" => Self::FoundryKey,
            "aws" => Self::Aws,
            "google" => Self::Google,
            _ => return None,
        })
    }
}

/// One known way to reach a provider in one protocol.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    /// What the configuration calls this way; a provider may have several.
    pub name: &'static str,
    pub slug: &'static str,
    pub display_name: &'static str,
    /// May hold names in braces, which the provider's entry in the configuration fills; empty where the operator must
    /// give one.
    pub base_url: &'static str,
    pub protocol: Protocol,
    pub carriage: Carriage,
    pub auth: Auth,
    /// Environment variable that holds its key, for a start without a configuration file.
    pub env: Option<&'static str>,
    /// Runs on the operator's own machines: priced 0 unless configured otherwise.
    pub local: bool,
    /// Takes the client's `anthropic-beta` values.
    pub betas: Betas,
}

/// Which of the client's `anthropic-beta` values an upstream gets to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Betas {
    All,
    #[default]
    None,
    /// Those that are known to be understood there; an unknown one breaks the call.
    Bedrock,
    /// The same service, by its other protocol.
    Converse,
    Vertex,
}

const fn row(slug: &'static str, display_name: &'static str, protocol: Protocol, base_url: &'static str) -> Platform {
    Platform {
        name: slug,
        slug,
        display_name,
        base_url,
        protocol,
        carriage: Carriage::Plain,
        auth: Auth::Bearer,
        env: None,
        local: false,
        betas: Betas::None,
    }
}

const fn env(name: &'static str, platform: Platform) -> Platform {
    Platform { env: Some(name), ..platform }
}

const fn auth(auth: Auth, platform: Platform) -> Platform {
    Platform { auth, ..platform }
}

const fn local(platform: Platform) -> Platform {
    Platform { local: true, ..platform }
}

const fn named(name: &'static str, platform: Platform) -> Platform {
    Platform { name, ..platform }
}

const MESSAGES: Protocol = Protocol::Messages;
const CHAT: Protocol = Protocol::Chat;
const RESPONSES: Protocol = Protocol::Responses;

/// The first row of a provider is the one that is used when nothing else is said. The Messages format, which loses
/// nothing, stands before others, and the Responses protocol before the older one.
pub const PLATFORMS: &[Platform] = &[
    Platform {
        auth: Auth::ApiKey,
        betas: Betas::All,
        ..env("ANTHROPIC_API_KEY", row("anthropic", "Anthropic", MESSAGES, "https://api.anthropic.com"))
    },
    env("OPENAI_API_KEY", row("openai", "OpenAI", RESPONSES, "https://api.openai.com/v1")),
    row("openai", "OpenAI", CHAT, "https://api.openai.com/v1"),
    auth(
        Auth::GoogleKey,
        env(
            "GEMINI_API_KEY",
            named(
                "gemini",
                row(
                    "google-ai-studio",
                    "Google AI Studio",
                    Protocol::Gemini,
                    "https://generativelanguage.googleapis.com/v1beta",
                ),
            ),
        ),
    ),
    auth(
        Auth::Aws,
        env(
            "AWS_BEARER_TOKEN_BEDROCK",
            named(
                "bedrock",
                row(
                    "amazon-bedrock",
                    "Amazon Bedrock",
                    Protocol::Converse,
                    "https://bedrock-runtime.{region}.amazonaws.com",
                ),
            ),
        ),
    ),
    Platform {
        auth: Auth::Aws,
        carriage: Carriage::BedrockInvoke,
        betas: Betas::Bedrock,
        ..named(
            "bedrock-invoke",
            row("amazon-bedrock", "Amazon Bedrock", MESSAGES, "https://bedrock-runtime.{region}.amazonaws.com"),
        )
    },
    Platform {
        auth: Auth::Aws,
        betas: Betas::All,
        ..named(
            "bedrock-mantle",
            row("amazon-bedrock", "Amazon Bedrock", MESSAGES, "https://bedrock-mantle.{region}.api.aws/anthropic"),
        )
    },
    auth(
        Auth::Google,
        named(
            "vertex",
            row(
                "google-vertex",
                "Google Vertex",
                Protocol::Gemini,
                "https://{google_host}/v1/projects/{project}/locations/{region}/publishers/google",
            ),
        ),
    ),
    Platform {
        auth: Auth::Google,
        carriage: Carriage::Vertex,
        betas: Betas::Vertex,
        ..named(
            "vertex-anthropic",
            row(
                "google-vertex",
                "Google Vertex",
                MESSAGES,
                "https://{google_host}/v1/projects/{project}/locations/{region}/publishers/anthropic",
            ),
        )
    },
    auth(Auth::AzureKey, row("azure", "Azure", RESPONSES, "https://{resource}.openai.azure.com/openai/v1")),
    auth(Auth::AzureKey, row("azure", "Azure", CHAT, "https://{resource}.openai.azure.com/openai/v1")),
    Platform {
        auth: Auth::FoundryKey,
        betas: Betas::All,
        ..named("foundry", row("azure", "Azure", MESSAGES, "https://{resource}.services.ai.azure.com/anthropic"))
    },
    env("DEEPSEEK_API_KEY", row("deepseek", "DeepSeek", MESSAGES, "https://api.deepseek.com/anthropic")),
    row("deepseek", "DeepSeek", CHAT, "https://api.deepseek.com"),
    env("MOONSHOT_API_KEY", row("moonshotai", "Moonshot AI", MESSAGES, "https://api.moonshot.ai/anthropic")),
    row("moonshotai", "Moonshot AI", CHAT, "https://api.moonshot.ai/v1"),
    env("ZAI_API_KEY", row("z-ai", "Z.AI", MESSAGES, "https://api.z.ai/api/anthropic")),
    row("z-ai", "Z.AI", CHAT, "https://api.z.ai/api/paas/v4"),
    env("MINIMAX_API_KEY", row("minimax", "MiniMax", MESSAGES, "https://api.minimax.io/anthropic")),
    row("minimax", "MiniMax", CHAT, "https://api.minimax.io/v1"),
    env("OPENROUTER_API_KEY", row("openrouter", "OpenRouter", MESSAGES, "https://openrouter.ai/api")),
    row("openrouter", "OpenRouter", RESPONSES, "https://openrouter.ai/api/v1"),
    row("openrouter", "OpenRouter", CHAT, "https://openrouter.ai/api/v1"),
    env("FIREWORKS_API_KEY", row("fireworks", "Fireworks", MESSAGES, "https://api.fireworks.ai/inference")),
    row("fireworks", "Fireworks", RESPONSES, "https://api.fireworks.ai/inference/v1"),
    row("fireworks", "Fireworks", CHAT, "https://api.fireworks.ai/inference/v1"),
    env("XAI_API_KEY", row("xai", "xAI", RESPONSES, "https://api.x.ai/v1")),
    row("xai", "xAI", CHAT, "https://api.x.ai/v1"),
    env("GROQ_API_KEY", row("groq", "Groq", CHAT, "https://api.groq.com/openai/v1")),
    env("MISTRAL_API_KEY", row("mistral", "Mistral", CHAT, "https://api.mistral.ai/v1")),
    env("TOGETHER_API_KEY", row("together", "Together", CHAT, "https://api.together.ai/v1")),
    env("CEREBRAS_API_KEY", row("cerebras", "Cerebras", CHAT, "https://api.cerebras.ai/v1")),
    env("COHERE_API_KEY", row("cohere", "Cohere", Protocol::Cohere, "https://api.cohere.com")),
    env("PERPLEXITY_API_KEY", row("perplexity", "Perplexity", CHAT, "https://api.perplexity.ai")),
    env("DEEPINFRA_API_KEY", row("deepinfra", "DeepInfra", CHAT, "https://api.deepinfra.com/v1/openai")),
    env("NVIDIA_API_KEY", row("nvidia", "NVIDIA", CHAT, "https://integrate.api.nvidia.com/v1")),
    env("SAMBANOVA_API_KEY", row("sambanova", "SambaNova", CHAT, "https://api.sambanova.ai/v1")),
    env("NEBIUS_API_KEY", row("nebius", "Nebius", CHAT, "https://api.studio.nebius.ai/v1")),
    env("NOVITA_API_KEY", row("novita", "Novita", CHAT, "https://api.novita.ai/v3/openai")),
    env(
        "DASHSCOPE_API_KEY",
        named("dashscope", row("alibaba", "Alibaba", CHAT, "https://dashscope-intl.aliyuncs.com/compatible-mode/v1")),
    ),
    env("HF_TOKEN", row("huggingface", "Hugging Face", CHAT, "https://router.huggingface.co/v1")),
    row("github-models", "GitHub Models", CHAT, "https://models.github.ai/inference"),
    row("cloudflare", "Cloudflare", CHAT, "https://api.cloudflare.com/client/v4/accounts/{account}/ai/v1"),
    local(env("OLLAMA_HOST", row("ollama", "Ollama", MESSAGES, "http://127.0.0.1:11434"))),
    local(row("ollama", "Ollama", CHAT, "http://127.0.0.1:11434/v1")),
    local(row("vllm", "vLLM", MESSAGES, "http://127.0.0.1:8000")),
    local(row("vllm", "vLLM", RESPONSES, "http://127.0.0.1:8000/v1")),
    local(row("vllm", "vLLM", CHAT, "http://127.0.0.1:8000/v1")),
    local(row("sglang", "SGLang", MESSAGES, "http://127.0.0.1:30000")),
    local(row("sglang", "SGLang", CHAT, "http://127.0.0.1:30000/v1")),
    local(row("llamacpp", "llama.cpp", MESSAGES, "http://127.0.0.1:8080")),
    local(row("llamacpp", "llama.cpp", RESPONSES, "http://127.0.0.1:8080/v1")),
    local(row("llamacpp", "llama.cpp", CHAT, "http://127.0.0.1:8080/v1")),
    local(row("lmstudio", "LM Studio", MESSAGES, "http://127.0.0.1:1234")),
    local(row("lmstudio", "LM Studio", CHAT, "http://127.0.0.1:1234/v1")),
];

/// The ways to reach a provider, by its slug or by the name of one way; the usual one first.
pub fn ways(name: &str) -> impl Iterator<Item = &'static Platform> {
    PLATFORMS.iter().filter(move |platform| platform.slug == name || platform.name == name)
}

/// The usual way.
pub fn find(name: &str) -> Option<&'static Platform> {
    ways(name).next()
}

/// `template` with its names in braces filled; the first name that nothing is known of is given back.
pub fn filled(template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, &str> {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) = after.split_once('}').unwrap_or((after, ""));
        out.push_str(before);
        out.push_str(&value(name).ok_or(name)?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

/// The host that serves a region of Vertex AI.
pub fn google_host(region: &str) -> String {
    match region {
        "global" => "aiplatform.googleapis.com".to_owned(),
        "us" | "eu" => format!("aiplatform.{region}.rep.googleapis.com"),
        region => format!("{region}-aiplatform.googleapis.com"),
    }
}

/// Whether a provider stops, and stops charging, when a call is given up. Those that are known not to are read to the end.
pub fn supports_cancel(slug: &str) -> bool {
    let going_on =
        ["amazon-bedrock", "google-ai-studio", "google-vertex", "groq", "mistral", "nebius", "perplexity", "sambanova"];
    !going_on.contains(&slug)
}

/// Whether the vendor itself searches the web for its models on this way, by the way's name.
pub fn searches(name: &str, protocol: Protocol) -> bool {
    matches!(
        (name, protocol),
        ("anthropic", Protocol::Messages)
            | ("openai" | "xai", Protocol::Responses)
            | ("gemini" | "vertex", Protocol::Gemini)
            | ("perplexity", Protocol::Chat)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_stands_once_and_names_of_protocols_are_read_back() {
        for (place, platform) in PLATFORMS.iter().enumerate() {
            let same = |other: &&Platform| other.name == platform.name && other.protocol == platform.protocol;
            assert!(!PLATFORMS[..place].iter().any(|other| same(&other)), "{} twice", platform.name);
        }
        for name in Protocol::NAMES {
            assert_eq!(Protocol::parse(name).map(Protocol::as_str), Some(name));
        }
        for name in Auth::NAMES {
            assert!(Auth::parse(name).is_some(), "{name}");
        }
    }

    #[test]
    fn addresses_with_gaps_are_filled() {
        let region = |name: &str| (name == "region").then(|| "eu-west-1".to_owned());
        assert_eq!(filled("https://b.{region}.aws", region), Ok("https://b.eu-west-1.aws".to_owned()));
        assert_eq!(filled("https://{resource}.azure/x", region), Err("resource"));
        assert_eq!(filled("https://plain", region), Ok("https://plain".to_owned()));
        assert_eq!(google_host("global"), "aiplatform.googleapis.com");
        assert_eq!(google_host("eu"), "aiplatform.eu.rep.googleapis.com");
        assert_eq!(google_host("europe-west4"), "europe-west4-aiplatform.googleapis.com");
    }
}
