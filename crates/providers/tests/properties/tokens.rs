//! Tokens are counted once: what was read from a cache, what was written to it, and the rest make up the prompt. What the
//! price is made of is the same whether an answer comes whole or in pieces.

use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use tidegate_core::Usage;
use tidegate_providers::{Protocol, adapter, anthropic};
use tidegate_wire::answer::{Counts, Event, MOST, Message};

use crate::PROTOCOLS;
use crate::run::{Case, NOW, frames};

/// What an upstream of the protocol says it used.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// Neither cached nor written; with pictures and sound.
    fresh: u64,
    read: u64,
    write: u64,
    /// Part of what was written.
    long: u64,
    /// Without the reasoning; with pictures and sound.
    words: u64,
    thinking: u64,
    seen: u64,
    heard: u64,
    drawn: u64,
    spoken: u64,
    searches: u64,
    /// Of a hundred, what is billed.
    billed: u64,
}

impl Used {
    /// Without what the protocol has no words for.
    fn told(self, protocol: Protocol) -> Self {
        let none = Self { long: 0, seen: 0, heard: 0, drawn: 0, spoken: 0, searches: 0, billed: 100, ..self };
        let Self { long, seen, heard, drawn, spoken, searches, billed, .. } = self;
        match protocol {
            Protocol::Chat => Self { billed: 100, ..self },
            Protocol::Responses => Self { seen, heard, drawn, spoken, ..none },
            Protocol::Gemini => Self { write: 0, seen, heard, drawn, spoken, searches: searches.min(1), ..none },
            Protocol::Converse => Self { long, words: self.words + self.thinking, thinking: 0, ..none },
            Protocol::Cohere => {
                Self { write: 0, words: self.words + self.thinking, thinking: 0, searches, billed, ..none }
            }
            Protocol::Messages => none,
        }
    }

    fn prompt(self) -> u64 {
        self.fresh + self.read + self.write
    }

    fn output(self) -> u64 {
        self.words + self.thinking
    }

    /// The buckets that this is.
    fn usage(self, protocol: Protocol) -> Usage {
        let billed = |whole: u64| (protocol == Protocol::Cohere).then(|| whole * self.billed / 100);
        Usage {
            input: self.fresh,
            output: self.output(),
            cache_read: self.read,
            cache_write: self.write - self.long,
            cache_write_1h: self.long,
            thinking: self.thinking,
            input_image: self.seen,
            input_audio: self.heard,
            output_image: self.drawn,
            output_audio: self.spoken,
            billed_input: billed(self.prompt()),
            billed_output: billed(self.output()),
            web_searches: self.searches,
            ..Usage::default()
        }
    }
}

/// The usage as an upstream writes it.
fn written(protocol: Protocol, used: Used) -> Value {
    let Used { fresh, read, write, long, words, thinking, seen, heard, drawn, spoken, searches, billed } = used;
    let (prompt, output) = (used.prompt(), used.output());
    match protocol {
        Protocol::Chat => json!({
            "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output,
            "prompt_tokens_details": {
                "cached_tokens": read, "cache_write_tokens": write, "image_tokens": seen, "audio_tokens": heard,
                "cache_creation": {"ephemeral_5m_input_tokens": write - long, "ephemeral_1h_input_tokens": long},
            },
            "completion_tokens_details": {"reasoning_tokens": thinking, "image_tokens": drawn, "audio_tokens": spoken},
            "server_tool_use": {"web_search_requests": searches},
        }),
        Protocol::Responses => json!({
            "input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output,
            "input_tokens_details": {
                "cached_tokens": read, "cache_write_tokens": write, "image_tokens": seen, "audio_tokens": heard,
            },
            "output_tokens_details": {"reasoning_tokens": thinking, "image_tokens": drawn, "audio_tokens": spoken},
        }),
        // A part of the prompt may be what its own tools said; all of what was cached is sound here.
        Protocol::Gemini => json!({
            "promptTokenCount": prompt - fresh / 3, "toolUsePromptTokenCount": fresh / 3,
            "cachedContentTokenCount": read, "candidatesTokenCount": words, "thoughtsTokenCount": thinking,
            "totalTokenCount": prompt + output,
            "promptTokensDetails": [
                {"modality": "AUDIO", "tokenCount": heard + read}, {"modality": "IMAGE", "tokenCount": seen},
                {"modality": "TEXT", "tokenCount": fresh - heard - seen},
            ],
            "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": read}],
            "candidatesTokensDetails": [
                {"modality": "IMAGE", "tokenCount": drawn}, {"modality": "AUDIO", "tokenCount": spoken},
            ],
        }),
        // Its input leaves the cache out already.
        Protocol::Converse => json!({
            "inputTokens": fresh, "outputTokens": output, "totalTokens": prompt + output,
            "cacheReadInputTokens": read, "cacheWriteInputTokens": write,
            "cacheDetails": [{"ttl": "5m", "inputTokens": write - long}, {"ttl": "1h", "inputTokens": long}],
        }),
        Protocol::Cohere => json!({
            "tokens": {"input_tokens": prompt as f64, "output_tokens": output as f64}, "cached_tokens": read as f64,
            "billed_units": {
                "input_tokens": (prompt * billed / 100) as f64, "output_tokens": (output * billed / 100) as f64,
                "search_units": searches as f64,
            },
        }),
        Protocol::Messages => Value::Null,
    }
}

/// A whole answer that says so.
fn answer(protocol: Protocol, usage: &Value, searches: u64) -> Value {
    match protocol {
        Protocol::Chat => json!({
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}],
            "usage": usage,
        }),
        Protocol::Responses => json!({
            "status": "completed", "usage": usage,
            "output": [{"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": []}]}],
        }),
        Protocol::Gemini => {
            let queries: Vec<String> = (0..searches).map(|query| query.to_string()).collect();
            let mut candidate = json!({"content": {"role": "model", "parts": [{"text": "x"}]}, "finishReason": "STOP"});
            if searches > 0 {
                candidate["groundingMetadata"] = json!({"webSearchQueries": queries});
            }
            json!({"candidates": [candidate], "usageMetadata": usage})
        }
        Protocol::Converse => json!({
            "output": {"message": {"role": "assistant", "content": [{"text": "x"}]}}, "stopReason": "end_turn", "usage": usage,
        }),
        Protocol::Cohere => json!({
            "id": "x", "finish_reason": "COMPLETE", "message": {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
            "usage": usage,
        }),
        Protocol::Messages => Value::Null,
    }
}

/// The same in pieces.
fn pieces(protocol: Protocol, usage: &Value, searches: u64) -> Bytes {
    let events = |events: &[Value]| {
        let lines: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        Bytes::from(lines.concat())
    };
    match protocol {
        Protocol::Chat => events(&[
            json!({"choices": [{"index": 0, "delta": {"content": "x"}}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            json!({"choices": [], "usage": usage}),
        ]),
        Protocol::Responses => events(&[
            json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "x"}),
            json!({"type": "response.completed", "response": {"status": "completed", "usage": usage}}),
        ]),
        // The first pieces say only how it is served.
        Protocol::Gemini => events(&[
            json!({"candidates": [{"content": {"parts": [{"text": "y"}]}}], "usageMetadata": {"trafficType": "ON_DEMAND"}}),
            answer(protocol, usage, searches),
        ]),
        Protocol::Converse => frames(&format!(
            "messageStart {{\"role\":\"assistant\"}}\n\
             contentBlockDelta {{\"contentBlockIndex\":0,\"delta\":{{\"text\":\"x\"}}}}\n\
             contentBlockStop {{\"contentBlockIndex\":0}}\nmessageStop {{\"stopReason\":\"end_turn\"}}\n\
             metadata {}\n",
            json!({"usage": usage})
        )),
        Protocol::Cohere => events(&[
            json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "x"}}}}),
            json!({"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": usage}}),
        ]),
        Protocol::Messages => Bytes::new(),
    }
}

/// What is read of a whole answer, and whether the upstream had told it.
fn counts_of_answer(protocol: Protocol, answer: &Value) -> Option<(Counts, bool)> {
    let context = Case::read(protocol, Path::new("")).context();
    let answered = adapter::message(protocol, answer.to_string().as_bytes(), &context, NOW).ok()?;
    Some((Message::read(&answered.body).unwrap().counts().unwrap(), answered.is_estimated))
}

/// The same of a stream, as the gateway puts it together.
fn counts_of_stream(protocol: Protocol, bytes: Bytes) -> Counts {
    let (events, fault) = Case::read(protocol, Path::new("")).translated(&[bytes]);
    assert_eq!(fault, None, "{protocol:?}");
    let mut counts = Counts::default();
    for event in events {
        let text = event.to_string();
        let event = Event::read(text.as_bytes()).unwrap();
        let told = match event.message() {
            Ok(message) => message.counts(),
            Err(_) => event.delta().counts(),
        };
        counts.update(told.unwrap_or_default());
    }
    counts
}

/// No bucket is counted in another, and no part is more than what it is part of.
fn is_sound(usage: &Usage) -> bool {
    usage.input_image.saturating_add(usage.input_audio) <= usage.input
        && usage.thinking.saturating_add(usage.output_image).saturating_add(usage.output_audio) <= usage.output
        && usage.billed_input.is_none_or(|billed| billed <= usage.prompt())
        && usage.billed_output.is_none_or(|billed| billed <= usage.output)
}

fn used() -> impl Strategy<Value = Used> {
    let count = || prop_oneof![1 => Just(0_u64), 3 => 0..1_000_u64, 2 => 0..1_000_000_u64];
    (prop::collection::vec(count(), 9), 0..9_u64, 0..=100_u64, any::<bool>()).prop_map(
        |(counts, searches, billed, is_long)| {
            let [seen, heard, drawn, spoken] = [counts[0], counts[1], counts[2], counts[3]];
            Used {
                fresh: counts[4] + seen + heard,
                read: counts[5],
                write: counts[6],
                long: if is_long { counts[6] / 2 } else { 0 },
                words: counts[7] + drawn + spoken,
                thinking: counts[8],
                seen,
                heard,
                drawn,
                spoken,
                searches,
                billed,
            }
        },
    )
}

/// What stands where a number should.
fn odd_number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..5_000_u64).prop_map(Value::from),
        Just(Value::Null),
        Just(json!("12")),
        Just(json!([1])),
        Just(json!({"x": 1})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn p71_the_buckets_are_disjoint_and_make_up_what_the_upstream_counted(used in used()) {
        for protocol in PROTOCOLS {
            let used = used.told(protocol);
            let written = written(protocol, used);
            let (counts, is_estimated) = counts_of_answer(protocol, &answer(protocol, &written, used.searches)).unwrap();
            prop_assert!(!is_estimated && !counts.is_odd(), "{:?}: {}", protocol, written);
            let usage = anthropic::usage(&counts);
            prop_assert_eq!(usage, used.usage(protocol), "{:?}: {}", protocol, written);
            prop_assert_eq!((usage.prompt(), usage.output), (used.prompt(), used.output()));
            prop_assert!(is_sound(&usage));
            let streamed = counts_of_stream(protocol, pieces(protocol, &written, used.searches));
            prop_assert_eq!(anthropic::usage(&streamed), usage, "{:?} in pieces: {}", protocol, written);
        }
    }

    #[test]
    fn p71_a_prompt_that_leaves_the_cache_out_is_not_lessened(prompt in 0..1_000_u64, more in 1..1_000_u64, output in 0..9_u64) {
        let read = prompt + more;
        let said = json!({"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": {"cached_tokens": read}});
        let (counts, _) = counts_of_answer(Protocol::Chat, &answer(Protocol::Chat, &said, 0)).unwrap();
        let usage = anthropic::usage(&counts);
        prop_assert_eq!((usage.input, usage.cache_read, usage.output), (prompt, read, output));
    }

    #[test]
    fn numbers_of_any_kind_are_counted_or_left_out(
        used in used(), odd in prop::collection::vec((any::<Index>(), odd_number()), 1..6),
    ) {
        for protocol in PROTOCOLS {
            let mut written = written(protocol, used.told(protocol));
            for (place, number) in &odd {
                let mut places = numbers(&mut written);
                let place = place.index(places.len());
                *places[place] = number.clone();
            }
            let whole = counts_of_answer(protocol, &answer(protocol, &written, 0));
            let (whole, is_estimated) = whole.expect("usage spoils no answer");
            let streamed = counts_of_stream(protocol, pieces(protocol, &written, 0));
            let usage = anthropic::usage(&whole);
            prop_assert!(is_sound(&usage), "{:?}: {:?}", protocol, usage);
            prop_assert!(usage.prompt() <= 4 * MOST && usage.output <= 2 * MOST, "{:?}: {:?}", protocol, usage);
            if !is_estimated {
                prop_assert_eq!(anthropic::usage(&streamed), usage, "{:?}: {}", protocol, written);
                prop_assert_eq!(streamed.is_odd(), whole.is_odd(), "{:?}: {}", protocol, written);
            }
        }
    }

    #[test]
    fn a_number_that_cannot_be_is_cut_and_remembered(
        used in used(), number in prop_oneof![-1e30..-0.5_f64, (1..1_000_000_u32).prop_map(|whole| f64::from(whole) + 0.25), 1.1e12..1e30_f64],
    ) {
        // Who says that nothing at all was used is not believed, and nothing of what is said is taken.
        prop_assume!(used.fresh > 0 && used.words > 0);
        let names = [("prompt_tokens", Protocol::Chat), ("output_tokens", Protocol::Responses),
            ("thoughtsTokenCount", Protocol::Gemini), ("cacheReadInputTokens", Protocol::Converse), ("cached_tokens", Protocol::Cohere)];
        for (name, protocol) in names {
            let mut written = written(protocol, used.told(protocol));
            written[name] = json!(number);
            let (counts, is_estimated) = counts_of_answer(protocol, &answer(protocol, &written, 0)).unwrap();
            prop_assert!(!is_estimated && counts.is_odd(), "{:?}: {}", protocol, written);
        }
    }
}

/// The places of all numbers inside; where one was replaced by something else, that.
fn numbers(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Array(list) => list.iter_mut().flat_map(numbers).collect(),
        Value::Object(members) => members.values_mut().flat_map(numbers).collect(),
        Value::String(word) if word.parse::<f64>().is_err() => Vec::new(),
        other => vec![other],
    }
}

/// An upstream that tells nothing is not believed to have used nothing.
#[test]
fn what_is_missing_stays_missing() {
    let cases = [
        (Protocol::Chat, json!({"completion_tokens": 3})),
        (Protocol::Chat, json!({"prompt_tokens": 3})),
        (Protocol::Chat, json!("none")),
        (Protocol::Responses, json!({"input_tokens": 3})),
        (Protocol::Gemini, json!({"trafficType": "ON_DEMAND"})),
        (Protocol::Gemini, json!({"candidatesTokenCount": 3})),
        (Protocol::Converse, json!({"inputTokens": 3})),
        (Protocol::Cohere, json!({"billed_units": {"search_units": 1}})),
    ];
    for (protocol, usage) in cases {
        let (_, is_estimated) = counts_of_answer(protocol, &answer(protocol, &usage, 0)).unwrap();
        assert!(is_estimated, "{protocol:?}: {usage}");
    }
    let told = json!({"prompt_tokens": 3, "total_tokens": 10});
    let (counts, is_estimated) = counts_of_answer(Protocol::Chat, &answer(Protocol::Chat, &told, 0)).unwrap();
    assert_eq!((counts.output, is_estimated), (Some(7), false), "the rest of the total");
}

/// How an answer was served and what its upstream says that it costs.
#[test]
fn tiers_and_costs_are_handed_on() {
    let with = |protocol, more: Value| {
        let mut usage = written(protocol, Used { fresh: 3, words: 2, ..Used::default() });
        usage.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (counts, _) = counts_of_answer(protocol, &answer(protocol, &usage, 0)).unwrap();
        let streamed = counts_of_stream(protocol, pieces(protocol, &usage, 0));
        assert_eq!((streamed.tier(), streamed.cost), (counts.tier(), counts.cost), "{protocol:?}: {usage}");
        (counts.tier().map(str::to_owned), anthropic::reported_cost(&counts).map(|cost| cost.to_string()))
    };
    let cases = [
        (Protocol::Chat, json!({"cost": 0.00123}), None, Some("0.00123")),
        (Protocol::Chat, json!({"cost": {"request_cost": 0.005, "total_cost": 0.0062}}), None, Some("0.0062")),
        (Protocol::Chat, json!({"cost": "free"}), None, None),
        (Protocol::Chat, json!({"cost": -1}), None, None),
        (Protocol::Chat, json!({"service_tier": "flex"}), Some("flex"), None),
        (Protocol::Responses, json!({"cost": 2}), None, Some("2")),
        (Protocol::Gemini, json!({"serviceTier": "priority"}), Some("priority"), None),
        (Protocol::Gemini, json!({"trafficType": "ON_DEMAND_FLEX"}), Some("flex"), None),
        (Protocol::Gemini, json!({"trafficType": "ON_DEMAND"}), Some("standard"), None),
    ];
    for (protocol, more, tier, cost) in cases {
        let (found_tier, found_cost) = with(protocol, more.clone());
        let found_tier = found_tier.filter(|found| tier.is_some() || found != "standard");
        assert_eq!((found_tier.as_deref(), found_cost.as_deref()), (tier, cost), "{protocol:?}: {more}");
    }
    let served = json!({
        "output": {"message": {"content": [{"text": "x"}]}}, "stopReason": "end_turn", "serviceTier": {"type": "reserved"},
        "usage": {"inputTokens": 1, "outputTokens": 1},
    });
    assert_eq!(counts_of_answer(Protocol::Converse, &served).unwrap().0.tier(), Some("reserved"));
}
