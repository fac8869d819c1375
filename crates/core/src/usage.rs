//! What an answer consumed, in disjoint buckets.

use serde::{Deserialize, Serialize};

/// What one answer used. `input`, `cache_read`, `cache_write` and `cache_write_1h` do not overlap and make up the prompt;
/// `output` includes thinking. What is said to be part of a bucket is at most that bucket, and the parts of one bucket do
/// not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    #[serde(skip_serializing_if = "is_zero")]
    pub input: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub output: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Written with the five-minute lifetime, or with one the upstream did not name.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_1h: u64,
    /// Part of `output`.
    #[serde(skip_serializing_if = "is_zero")]
    pub thinking: u64,
    /// Tokens of pictures; part of `input`.
    #[serde(skip_serializing_if = "is_zero")]
    pub input_image: u64,
    /// Tokens of sound; part of `input`.
    #[serde(skip_serializing_if = "is_zero")]
    pub input_audio: u64,
    /// Part of `output`.
    #[serde(skip_serializing_if = "is_zero")]
    pub output_image: u64,
    /// Part of `output`.
    #[serde(skip_serializing_if = "is_zero")]
    pub output_audio: u64,
    /// What the vendor bills in place of the whole prompt, where it says so; at most the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub billed_input: Option<u64>,
    /// What the vendor bills in place of the output, where it says so; at most the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub billed_output: Option<u64>,
    /// Pictures that were sent, and made; pieces, not tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub images: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub images_out: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub web_searches: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub web_fetches: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub code_exec_seconds: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub containers: u64,
    /// What who ranks documents counts in place of calls.
    #[serde(skip_serializing_if = "is_zero")]
    pub search_units: u64,
    /// Characters of a text that was spoken.
    #[serde(skip_serializing_if = "is_zero")]
    pub characters: u64,
    /// Milliseconds of sound that was listened to.
    #[serde(skip_serializing_if = "is_zero")]
    pub audio_ms: u64,
}

/// What says nothing is not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    /// Everything the model had to read.
    pub fn prompt(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write).saturating_add(self.cache_write_1h)
    }

    /// Both together, for a request that was answered in several calls.
    pub fn plus(&self, other: &Self) -> Self {
        let billed = |own: Option<u64>, whole: u64, others: Option<u64>, others_whole: u64| {
            (own.is_some() || others.is_some())
                .then(|| own.unwrap_or(whole).saturating_add(others.unwrap_or(others_whole)))
        };
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            cache_write_1h: self.cache_write_1h.saturating_add(other.cache_write_1h),
            thinking: self.thinking.saturating_add(other.thinking),
            input_image: self.input_image.saturating_add(other.input_image),
            input_audio: self.input_audio.saturating_add(other.input_audio),
            output_image: self.output_image.saturating_add(other.output_image),
            output_audio: self.output_audio.saturating_add(other.output_audio),
            billed_input: billed(self.billed_input, self.prompt(), other.billed_input, other.prompt()),
            billed_output: billed(self.billed_output, self.output, other.billed_output, other.output),
            images: self.images.saturating_add(other.images),
            images_out: self.images_out.saturating_add(other.images_out),
            web_searches: self.web_searches.saturating_add(other.web_searches),
            web_fetches: self.web_fetches.saturating_add(other.web_fetches),
            code_exec_seconds: self.code_exec_seconds.saturating_add(other.code_exec_seconds),
            containers: self.containers.saturating_add(other.containers),
            search_units: self.search_units.saturating_add(other.search_units),
            characters: self.characters.saturating_add(other.characters),
            audio_ms: self.audio_ms.saturating_add(other.audio_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_stop_at_the_largest_number() {
        let most = Usage { input: u64::MAX, cache_read: 1, output: 3, billed_output: Some(2), ..Usage::default() };
        assert_eq!(most.prompt(), u64::MAX);
        let both = most.plus(&Usage { input: 1, output: 5, ..Usage::default() });
        assert_eq!((both.input, both.output, both.billed_output, both.billed_input), (u64::MAX, 8, Some(7), None));
    }

    #[test]
    fn an_older_record_can_be_read() {
        let read: Usage = serde_json::from_str(r#"{"input":3,"output":4}"#).unwrap();
        assert_eq!(read, Usage { input: 3, output: 4, ..Usage::default() });
    }
}
