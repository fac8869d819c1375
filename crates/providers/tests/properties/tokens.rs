//! Tokens are counted once: what was read from a cache, what was written to it, and the rest make up the prompt.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_providers::{Protocol, adapter};

use crate::run::{Case, NOW};

/// What an upstream of the protocol says it used.
struct Used {
    /// All of the prompt.
    prompt: u64,
    read: u64,
    write: u64,
    /// With the reasoning.
    output: u64,
    thinking: u64,
}

fn answer(protocol: Protocol, used: &Used) -> Value {
    let Used { prompt, read, write, output, thinking } = *used;
    match protocol {
        Protocol::Chat => json!({
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output,
                "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
                "completion_tokens_details": {"reasoning_tokens": thinking},
            },
        }),
        Protocol::Responses => json!({
            "status": "completed",
            "output": [{"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": []}]}],
            "usage": {
                "input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output,
                "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
                "output_tokens_details": {"reasoning_tokens": thinking},
            },
        }),
        // A part of the prompt may be what its own tools said.
        Protocol::Gemini => json!({
            "candidates": [{"content": {"role": "model", "parts": [{"text": "x"}]}, "finishReason": "STOP"}],
            "usageMetadata": {
                "promptTokenCount": prompt - (prompt - read) / 3, "toolUsePromptTokenCount": (prompt - read) / 3,
                "cachedContentTokenCount": read, "candidatesTokenCount": output - thinking, "thoughtsTokenCount": thinking,
                "totalTokenCount": prompt + output,
            },
        }),
        // Its input leaves the cache out already.
        Protocol::Converse => json!({
            "output": {"message": {"role": "assistant", "content": [{"text": "x"}]}}, "stopReason": "end_turn",
            "usage": {
                "inputTokens": prompt - read - write, "outputTokens": output, "totalTokens": prompt + output,
                "cacheReadInputTokens": read, "cacheWriteInputTokens": write,
            },
        }),
        Protocol::Cohere => json!({
            "id": "x", "finish_reason": "COMPLETE", "message": {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
            "usage": {"tokens": {"input_tokens": prompt as f64, "output_tokens": output as f64}, "cached_tokens": read as f64},
        }),
        Protocol::Messages => Value::Null,
    }
}

fn counted(protocol: Protocol, answer: &Value) -> [u64; 4] {
    let context = Case::read(protocol, Path::new("")).context();
    let message = adapter::message(protocol, answer.to_string().as_bytes(), &context, NOW).unwrap().body;
    let usage = serde_json::from_slice::<Value>(&message).unwrap()["usage"].clone();
    ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"]
        .map(|name| usage[name].as_u64().unwrap_or_else(|| panic!("{name} of {usage}")))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn p71_the_parts_of_a_prompt_make_up_the_whole(
        fresh in 0..1_000_000_u64, read in 0..1_000_000_u64, write in 0..1_000_000_u64,
        words in 0..100_000_u64, thinking in 0..100_000_u64,
    ) {
        for protocol in crate::PROTOCOLS {
            // These tell nothing of what was written to a cache.
            let write = if matches!(protocol, Protocol::Gemini | Protocol::Cohere) { 0 } else { write };
            let used = Used { prompt: fresh + read + write, read, write, output: words + thinking, thinking };
            prop_assert_eq!(counted(protocol, &answer(protocol, &used)), [fresh, read, write, words + thinking], "{:?}", protocol);
        }
    }

    #[test]
    fn p71_a_prompt_that_leaves_the_cache_out_is_not_lessened(prompt in 0..1_000_u64, more in 1..1_000_u64, output in 0..9_u64) {
        let read = prompt + more;
        let said = json!({"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": {"cached_tokens": read}});
        let mut answer = answer(Protocol::Chat, &Used { prompt, read: 0, write: 0, output, thinking: 0 });
        answer["usage"] = said;
        prop_assert_eq!(counted(Protocol::Chat, &answer), [prompt, read, 0, output]);
    }

    #[test]
    fn numbers_of_any_kind_are_counted_or_left_out(numbers in prop::collection::vec(any::<f64>(), 5)) {
        for protocol in crate::PROTOCOLS {
            let mut answer = answer(protocol, &Used { prompt: 0, read: 0, write: 0, output: 0, thinking: 0 });
            let mut numbers = numbers.iter().copied().cycle();
            spoil(&mut answer, &mut numbers);
            let context = Case::read(protocol, Path::new("")).context();
            if let Ok(answered) = adapter::message(protocol, answer.to_string().as_bytes(), &context, NOW) {
                let message = answered.body;
                let usage = serde_json::from_slice::<Value>(&message).unwrap()["usage"].clone();
                for name in ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"] {
                    prop_assert!(usage[name].is_u64(), "{:?}: {}", protocol, usage);
                }
            }
        }
    }
}

/// Replaces every number.
fn spoil(value: &mut Value, numbers: &mut impl Iterator<Item = f64>) {
    match value {
        Value::Number(_) => *value = numbers.next().into(),
        Value::Array(list) => list.iter_mut().for_each(|value| spoil(value, numbers)),
        Value::Object(members) => members.values_mut().for_each(|value| spoil(value, numbers)),
        _ => {}
    }
}
