//! The vendors a customer may bring a credential for, by slug. Most of them this build cannot call yet; a credential for
//! one of these waits for the release that can.

/// In the order of the alphabet.
pub const VENDORS: [&str; 102] = [
    "ai21",
    "aion-labs",
    "akashml",
    "alibaba",
    "amazon-bedrock",
    "amazon-nova",
    "ambient",
    "anthropic",
    "arcee-ai",
    "atlas-cloud",
    "avian",
    "azure",
    "baidu",
    "baseten",
    "black-forest-labs",
    "byteplus",
    "cerebras",
    "chutes",
    "cirrascale",
    "clarifai",
    "cloudflare",
    "cohere",
    "coreweave",
    "crusoe",
    "darkbloom",
    "databricks",
    "decart",
    "deepgram",
    "deepinfra",
    "deepseek",
    "dekallm",
    "digitalocean",
    "featherless",
    "fireworks",
    "fish-audio",
    "friendli",
    "gmicloud",
    "google-ai-studio",
    "google-vertex",
    "groq",
    "heygen",
    "inception",
    "inceptron",
    "inferact-vllm",
    "inference-net",
    "infermatic",
    "inflection",
    "io-net",
    "ionstream",
    "krea",
    "liquid",
    "makora",
    "mancer",
    "mara",
    "meta",
    "minimax",
    "mistral",
    "modal",
    "modelrun",
    "modular",
    "moonshotai",
    "morph",
    "ncompass",
    "nebius",
    "nex-agi",
    "nextbit",
    "novita",
    "nvidia",
    "open-inference",
    "openai",
    "parasail",
    "perceptron",
    "perplexity",
    "phala",
    "poolside",
    "quiver",
    "recraft",
    "reka",
    "relace",
    "runway",
    "sail-research",
    "sakana",
    "sakana-ai",
    "sambanova",
    "seed",
    "siliconflow",
    "sourceful",
    "stepfun",
    "streamlake",
    "switchpoint",
    "tencent",
    "tenstorrent",
    "thinkingmachines",
    "together",
    "upstage",
    "venice",
    "wafer",
    "wandb",
    "wandb-legacy",
    "xai",
    "xiaomi",
    "z-ai",
];

pub fn is_vendor(slug: &str) -> bool {
    VENDORS.binary_search(&slug).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_every_slug_is_one() {
        assert!(VENDORS.is_sorted() && VENDORS.iter().all(|slug| is_vendor(slug)));
        let is_slug = |slug: &&str| {
            slug.split('-').all(|word| {
                !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            })
        };
        assert!(VENDORS.iter().all(is_slug));
        assert!(!is_vendor("") && !is_vendor("OpenAI") && !is_vendor("open"));
    }
}
