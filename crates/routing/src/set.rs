//! Small sets of words that everybody knows: what a request holds, what an endpoint takes.

/// An enum whose variants are words of the interface, and the set of them in one number.
macro_rules! words {
    (
        $(#[$about:meta])* pub enum $word:ident { $($(#[$said:meta])* $variant:ident = $text:literal,)+ }
        $(#[$about_set:meta])* pub struct $set:ident($number:ty);
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $word { $($(#[$said])* $variant,)+ }

        impl $word {
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }

        $(#[$about_set])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct $set($number);

        impl $set {
            pub const NONE: Self = Self(0);
            pub const ALL: Self = Self((1 << $word::ALL.len()) - 1);

            pub fn contains(self, word: $word) -> bool {
                self.0 & (1 << word as $number) != 0
            }

            pub fn contains_all(self, others: Self) -> bool {
                others.0 & !self.0 == 0
            }

            pub fn is_empty(self) -> bool {
                self.0 == 0
            }

            #[must_use]
            pub fn with(self, word: $word) -> Self {
                Self(self.0 | 1 << word as $number)
            }

            #[must_use]
            pub fn without(self, word: $word) -> Self {
                Self(self.0 & !(1 << word as $number))
            }

            /// What is in this set and not in the other.
            #[must_use]
            pub fn less(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            pub fn iter(self) -> impl Iterator<Item = $word> {
                $word::ALL.iter().copied().filter(move |word| self.contains(*word))
            }
        }

        impl FromIterator<$word> for $set {
            fn from_iter<T: IntoIterator<Item = $word>>(words: T) -> Self {
                words.into_iter().fold(Self::NONE, Self::with)
            }
        }
    };
}

words! {
    /// A parameter by the name under which the public interface lists it.
    pub enum Parameter {
        Container = "container",
        ContextManagement = "context_management",
        Diagnostics = "diagnostics",
        FrequencyPenalty = "frequency_penalty",
        IncludeReasoning = "include_reasoning",
        InferenceGeo = "inference_geo",
        LogitBias = "logit_bias",
        Logprobs = "logprobs",
        MaxTokens = "max_tokens",
        McpServers = "mcp_servers",
        MinP = "min_p",
        ParallelToolCalls = "parallel_tool_calls",
        PresencePenalty = "presence_penalty",
        Reasoning = "reasoning",
        RepetitionPenalty = "repetition_penalty",
        ResponseFormat = "response_format",
        Seed = "seed",
        Stop = "stop",
        StructuredOutputs = "structured_outputs",
        Temperature = "temperature",
        /// A conversation that the upstream holds.
        Thread = "thread",
        ToolChoice = "tool_choice",
        Tools = "tools",
        TopA = "top_a",
        TopK = "top_k",
        TopLogprobs = "top_logprobs",
        TopP = "top_p",
        /// How much a model writes, or how hard it tries.
        Verbosity = "verbosity",
        WebSearchOptions = "web_search_options",
    }
    pub struct Parameters(u32);
}

words! {
    /// What can be shown to a model.
    pub enum Modality {
        Text = "text",
        Image = "image",
        File = "file",
        Audio = "audio",
        Video = "video",
    }
    pub struct Modalities(u8);
}

words! {
    /// How coarsely a provider stores the numbers of a model.
    pub enum Quantization {
        Int4 = "int4",
        Int8 = "int8",
        Fp4 = "fp4",
        Mxfp4 = "mxfp4",
        Nvfp4 = "nvfp4",
        Fp6 = "fp6",
        Fp8 = "fp8",
        Mxfp8 = "mxfp8",
        Fp16 = "fp16",
        Bf16 = "bf16",
        Fp32 = "fp32",
        Unknown = "unknown",
    }
    pub struct Quantizations(u16);
}

words! {
    /// What may stand behind the name of a model.
    pub enum Variant {
        /// Endpoints that cost nothing.
        Free = "free",
        /// Endpoints with a longer context.
        Extended = "extended",
        /// Thinks unless it is told not to.
        Thinking = "thinking",
        /// The fastest first, with those that are fast for more money.
        Nitro = "nitro",
        /// The cheapest first, with those that are cheap and slow.
        Floor = "floor",
        /// The best at calling tools first.
        Exacto = "exacto",
        /// May search the web.
        Online = "online",
    }
    pub struct Variants(u8);
}

words! {
    /// How an endpoint searches the web for its models, which decides what a search there can be told.
    pub enum Searcher {
        /// Not at all; somebody else must.
        None = "none",
        Anthropic = "anthropic",
        Openai = "openai",
        Xai = "xai",
        Google = "google",
        /// The model searches whenever it answers, and is told nothing.
        Itself = "itself",
    }
    pub struct Searchers(u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set: Parameters = [Parameter::TopK, Parameter::Stop].into_iter().collect();
        assert!(set.contains(Parameter::TopK) && !set.contains(Parameter::Tools));
        assert_eq!(set.iter().map(Parameter::as_str).collect::<Vec<_>>(), ["stop", "top_k"]);
        assert_eq!(set.less(Parameters::NONE.with(Parameter::Stop)), Parameters::NONE.with(Parameter::TopK));
        assert!(Parameters::ALL.contains_all(set) && !set.contains_all(Parameters::ALL));
        assert_eq!(Parameters::ALL.without(Parameter::Seed).with(Parameter::Seed), Parameters::ALL);
        assert!(Parameter::ALL.iter().all(|word| Parameter::parse(word.as_str()) == Some(*word)));
        assert!(Parameter::ALL.is_sorted_by_key(|word| word.as_str()), "they are listed in this order");
        assert!(Quantizations::ALL.iter().count() == 12 && Quantization::parse("fp5").is_none());
    }
}
