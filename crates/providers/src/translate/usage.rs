//! What an answer used, in the convention of the Messages format: input without what was read from or written to a cache,
//! output with the thinking.

/// More than any answer can have used; what claims more is not believed, and sums of such numbers stay numbers.
const MOST: f64 = 1e12;

/// A count as upstreams write it: some in floating point, none of them meaning a fraction or less than nothing.
pub fn tokens(number: Option<f64>) -> Option<u64> {
    number.map(|number| number.round().clamp(0.0, MOST) as u64)
}

/// A service tier in the words of the Messages format; none for a word that nobody is known to use.
pub fn tier(word: &str) -> Option<&'static str> {
    Some(match word {
        "default" | "standard" | "on_demand" => "standard",
        "priority" | "fast" => "priority",
        "flex" => "flex",
        "batch" => "batch",
        "scale" => "scale",
        _ => return None,
    })
}

/// Tokens of an answer, as far as the upstream has told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub input: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// How much of what was written is kept for an hour, where the upstream tells.
    pub cache_write_1h: Option<u64>,
    pub output: u64,
    pub thinking: Option<u64>,
    /// Searches that the upstream ran by itself.
    pub web_searches: Option<u64>,
    /// The service tier that the upstream says it used.
    pub tier: Option<&'static str>,
    known: bool,
}

impl Counted {
    /// Until the upstream tells.
    pub fn estimated(input: u64) -> Self {
        Self { input, ..Self::default() }
    }

    /// What the upstream told, or what it must have been when it told nothing: an answer without usage breaks clients.
    pub fn or_estimated(self, input: u64, said: u64) -> Self {
        if self.known {
            return self;
        }
        Self { input, output: said.div_ceil(4), web_searches: self.web_searches, tier: self.tier, ..Self::default() }
    }

    pub fn is_known(&self) -> bool {
        self.known
    }

    /// From an upstream whose prompt counts what was cached, too; nearly all do. `total` finds out those who leave the
    /// reasoning out of the output.
    pub fn inclusive(
        prompt: u64,
        read: u64,
        write: u64,
        output: u64,
        thinking: Option<u64>,
        total: Option<u64>,
    ) -> Self {
        // More read than there was: this upstream leaves the cached part out of the prompt already.
        let input = if read > prompt { prompt } else { prompt.saturating_sub(read).saturating_sub(write) };
        // Numbers come from outside and may be of any size.
        let said = prompt.saturating_add(output);
        let left_out = thinking
            .filter(|thinking| *thinking > 0 && total == Some(said.saturating_add(*thinking)) && total != Some(said));
        Self {
            input,
            cache_read: read,
            cache_write: write,
            output: output.saturating_add(left_out.unwrap_or(0)),
            thinking,
            known: true,
            ..Self::default()
        }
    }

    /// From an upstream whose input leaves the cached part out.
    pub fn exclusive(input: u64, read: u64, write: u64, output: u64) -> Self {
        Self { input, cache_read: read, cache_write: write, output, known: true, ..Self::default() }
    }

    pub fn to_json(self) -> String {
        let thinking = self
            .thinking
            .map(|tokens| format!(r#","output_tokens_details":{{"thinking_tokens":{tokens}}}"#))
            .unwrap_or_default();
        let written = self.cache_write_1h.map(|long| {
            let short = self.cache_write.saturating_sub(long);
            format!(r#","cache_creation":{{"ephemeral_5m_input_tokens":{short},"ephemeral_1h_input_tokens":{long}}}"#)
        });
        let written = written.unwrap_or_default();
        let searches = self
            .web_searches
            .map(|count| format!(r#","server_tool_use":{{"web_search_requests":{count},"web_fetch_requests":0}}"#))
            .unwrap_or_default();
        let tier = self.tier.map(|tier| format!(r#","service_tier":"{tier}""#)).unwrap_or_default();
        format!(
            r#"{{"input_tokens":{},"cache_creation_input_tokens":{},"cache_read_input_tokens":{},"output_tokens":{}{thinking}{written}{searches}{tier}}}"#,
            self.input, self.cache_write, self.cache_read, self.output
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p71_cached_tokens_are_counted_once() {
        let counted = Counted::inclusive(120, 100, 0, 30, Some(18), Some(150));
        assert_eq!((counted.input, counted.cache_read, counted.output), (20, 100, 30));
        let written = Counted::inclusive(100, 20, 30, 5, None, None);
        assert_eq!((written.input, written.cache_read, written.cache_write), (50, 20, 30));
        let exclusive = Counted::inclusive(10, 90, 0, 5, None, None);
        assert_eq!((exclusive.input, exclusive.cache_read), (10, 90));
    }

    #[test]
    fn numbers_of_any_size_are_taken() {
        let most = u64::MAX;
        let counted = Counted::inclusive(most, most, most, most, Some(most), Some(most));
        assert_eq!((counted.input, counted.output), (0, most));
    }

    #[test]
    fn p72_reasoning_that_was_left_out_of_the_output_is_added() {
        assert_eq!(Counted::inclusive(10, 0, 0, 5, Some(7), Some(22)).output, 12);
        assert_eq!(Counted::inclusive(10, 0, 0, 12, Some(7), Some(22)).output, 12);
        assert_eq!(Counted::inclusive(10, 0, 0, 12, Some(7), None).output, 12);
    }

    #[test]
    fn what_only_some_upstreams_tell_is_written_only_then() {
        let plain = Counted::exclusive(5, 1, 30, 2);
        assert_eq!(
            plain.to_json(),
            r#"{"input_tokens":5,"cache_creation_input_tokens":30,"cache_read_input_tokens":1,"output_tokens":2}"#
        );
        let told = Counted { cache_write_1h: Some(20), web_searches: Some(3), ..plain };
        let told: serde_json::Value = serde_json::from_str(&told.to_json()).unwrap();
        let written = serde_json::json!({"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20});
        assert_eq!(told["cache_creation"], written);
        let searched = serde_json::json!({"web_search_requests": 3, "web_fetch_requests": 0});
        assert_eq!(told["server_tool_use"], searched, "clients read both");
        let searched = Counted { web_searches: Some(1), ..Counted::default() }.or_estimated(9, 8);
        assert_eq!((searched.input, searched.output, searched.web_searches), (9, 2, Some(1)));
    }
}
