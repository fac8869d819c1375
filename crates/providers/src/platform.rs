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

    /// Whether this build can call such an upstream.
    pub fn is_spoken(self) -> bool {
        matches!(self, Self::Messages | Self::Chat)
    }
}

/// How the credential travels. Always in a header: a key in a URL ends up in logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// `x-api-key: <key>`
    ApiKey,
    /// `Authorization: Bearer <key>`
    Bearer,
}

/// One known way to reach a provider.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    pub slug: &'static str,
    pub display_name: &'static str,
    /// Without a base URL the operator must give one.
    pub base_url: Option<&'static str>,
    pub protocol: Protocol,
    pub auth: Auth,
    /// Environment variable that holds its key, for a start without a configuration file.
    pub env: Option<&'static str>,
    /// Runs on the operator's own machines: priced 0 unless configured otherwise.
    pub local: bool,
    /// Takes the client's `anthropic-beta` values.
    pub betas: bool,
}

const fn row(slug: &'static str, display_name: &'static str, protocol: Protocol, base_url: &'static str) -> Platform {
    Platform {
        slug,
        display_name,
        base_url: Some(base_url),
        protocol,
        auth: Auth::Bearer,
        env: None,
        local: false,
        betas: false,
    }
}

const fn env(name: &'static str, platform: Platform) -> Platform {
    Platform { env: Some(name), ..platform }
}

const fn local(platform: Platform) -> Platform {
    Platform { local: true, ..platform }
}

/// Providers with an address in the Messages format stand first: that is the format that loses nothing.
pub const PLATFORMS: &[Platform] = &[
    Platform {
        auth: Auth::ApiKey,
        betas: true,
        ..env("ANTHROPIC_API_KEY", row("anthropic", "Anthropic", Protocol::Messages, "https://api.anthropic.com"))
    },
    env("DEEPSEEK_API_KEY", row("deepseek", "DeepSeek", Protocol::Messages, "https://api.deepseek.com/anthropic")),
    env("MOONSHOT_API_KEY", row("moonshotai", "Moonshot AI", Protocol::Messages, "https://api.moonshot.ai/anthropic")),
    env("ZAI_API_KEY", row("z-ai", "Z.AI", Protocol::Messages, "https://api.z.ai/api/anthropic")),
    env("MINIMAX_API_KEY", row("minimax", "MiniMax", Protocol::Messages, "https://api.minimax.io/anthropic")),
    env("OPENROUTER_API_KEY", row("openrouter", "OpenRouter", Protocol::Messages, "https://openrouter.ai/api")),
    env("FIREWORKS_API_KEY", row("fireworks", "Fireworks", Protocol::Messages, "https://api.fireworks.ai/inference")),
    local(env("OLLAMA_HOST", row("ollama", "Ollama", Protocol::Messages, "http://127.0.0.1:11434"))),
    local(row("vllm", "vLLM", Protocol::Messages, "http://127.0.0.1:8000")),
    local(row("sglang", "SGLang", Protocol::Messages, "http://127.0.0.1:30000")),
    local(row("llamacpp", "llama.cpp", Protocol::Messages, "http://127.0.0.1:8080")),
    local(row("lmstudio", "LM Studio", Protocol::Messages, "http://127.0.0.1:1234")),
    env("OPENAI_API_KEY", row("openai", "OpenAI", Protocol::Chat, "https://api.openai.com/v1")),
    env(
        "GEMINI_API_KEY",
        row(
            "google-ai-studio",
            "Google AI Studio",
            Protocol::Gemini,
            "https://generativelanguage.googleapis.com/v1beta",
        ),
    ),
    env("GROQ_API_KEY", row("groq", "Groq", Protocol::Chat, "https://api.groq.com/openai/v1")),
    env("MISTRAL_API_KEY", row("mistral", "Mistral", Protocol::Chat, "https://api.mistral.ai/v1")),
    env("XAI_API_KEY", row("xai", "xAI", Protocol::Chat, "https://api.x.ai/v1")),
    env("TOGETHER_API_KEY", row("together", "Together", Protocol::Chat, "https://api.together.ai/v1")),
    env("CEREBRAS_API_KEY", row("cerebras", "Cerebras", Protocol::Chat, "https://api.cerebras.ai/v1")),
    env("COHERE_API_KEY", row("cohere", "Cohere", Protocol::Cohere, "https://api.cohere.com")),
    env("PERPLEXITY_API_KEY", row("perplexity", "Perplexity", Protocol::Chat, "https://api.perplexity.ai")),
    env("DEEPINFRA_API_KEY", row("deepinfra", "DeepInfra", Protocol::Chat, "https://api.deepinfra.com/v1/openai")),
];

pub fn find(slug: &str) -> Option<&'static Platform> {
    PLATFORMS.iter().find(|platform| platform.slug == slug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_unique_and_names_of_protocols_are_read_back() {
        for (place, platform) in PLATFORMS.iter().enumerate() {
            assert!(PLATFORMS[..place].iter().all(|other| other.slug != platform.slug), "{}", platform.slug);
        }
        for name in Protocol::NAMES {
            assert_eq!(Protocol::parse(name).map(Protocol::as_str), Some(name));
        }
    }
}
