//! Streams of any bytes, and samples that were damaged on their way.

use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use tidegate_providers::{Protocol, adapter};

use crate::PROTOCOLS;
use crate::run::{Case, LARGEST_EVENT, NOW, all, frames, grammar, joined};

/// The streams among the golden cases.
static SAMPLES: LazyLock<Vec<(Protocol, Bytes)>> = LazyLock::new(|| {
    let streams = all().into_iter().filter_map(|(protocol, path)| {
        let text = Case::read(protocol, &path).text("stream.txt")?;
        let bytes = if protocol == Protocol::Converse { frames(&text) } else { Bytes::from(text) };
        Some((protocol, bytes))
    });
    streams.collect()
});

/// What is done to a sample.
#[derive(Clone, Debug)]
enum Damage {
    Removed(Index, usize),
    Repeated(Index, usize),
    Flipped(Index, u8),
    Inserted(Index, Vec<u8>),
    Cut(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<Index>(), 1..40_usize).prop_map(|(place, length)| Damage::Removed(place, length)),
        (any::<Index>(), 1..200_usize).prop_map(|(place, length)| Damage::Repeated(place, length)),
        (any::<Index>(), 1..=u8::MAX).prop_map(|(place, bits)| Damage::Flipped(place, bits)),
        (any::<Index>(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(place, bytes)| Damage::Inserted(place, bytes)),
        any::<Index>().prop_map(Damage::Cut),
    ]
}

fn damaged(sample: &[u8], damages: &[Damage]) -> Bytes {
    let mut bytes = sample.to_vec();
    for damage in damages.iter().filter(|_| !sample.is_empty()) {
        if bytes.is_empty() {
            break;
        }
        match damage {
            Damage::Removed(place, length) => {
                let from = place.index(bytes.len());
                bytes.drain(from..(from + length).min(sample.len()).min(bytes.len()).max(from));
            }
            Damage::Repeated(place, length) => {
                let from = place.index(bytes.len());
                let piece = bytes[from..(from + length).min(bytes.len())].to_vec();
                bytes.splice(from..from, piece);
            }
            Damage::Flipped(place, bits) => {
                let from = place.index(bytes.len());
                bytes[from] ^= bits;
            }
            Damage::Inserted(place, more) => {
                let from = place.index(bytes.len());
                bytes.splice(from..from, more.iter().copied());
            }
            Damage::Cut(place) => bytes.truncate(place.index(bytes.len())),
        }
    }
    bytes.into()
}

/// Reads the bytes whole and in pieces: both give the same, and it is a stream, or the beginning of one.
fn check(protocol: Protocol, bytes: &Bytes, cuts: &[Index]) {
    let case = Case::read(protocol, Path::new(""));
    let (events, fault) = case.translated(std::slice::from_ref(bytes));
    grammar(&events, &String::from_utf8_lossy(bytes));
    let is_over = events.last().is_some_and(|event| event["type"] == "message_stop");
    assert!(is_over || fault.is_some(), "a stream that does not end is broken");
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let pieces: Vec<Bytes> = cuts.windows(2).map(|pair| bytes.slice(pair[0]..pair[1])).collect();
    assert_eq!(joined(&case.translated(&pieces)), joined(&(events, fault)), "cut at {cuts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_streams_keep_the_grammar_however_they_are_cut(
        sample in any::<Index>(),
        damages in prop::collection::vec(damage(), 0..4),
        cuts in prop::collection::vec(any::<Index>(), 1..6),
    ) {
        let (protocol, bytes) = &SAMPLES[sample.index(SAMPLES.len())];
        check(*protocol, &damaged(bytes, &damages), &cuts);
    }

    #[test]
    fn any_bytes_keep_the_grammar_however_they_are_cut(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        lines in prop::collection::vec("(data|event|id|)(:| |: )[ -~é潮😀]{0,40}(\n|\r|\r\n|\n\n|\r\n\r\n)", 0..8),
        cuts in prop::collection::vec(any::<Index>(), 1..6),
    ) {
        for protocol in PROTOCOLS {
            check(protocol, &bytes.clone().into(), &cuts);
            check(protocol, &lines.concat().into(), &cuts);
        }
    }

    #[test]
    fn no_whole_answer_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,80}") {
        for protocol in PROTOCOLS {
            let context = Case::read(protocol, Path::new("")).context();
            for body in [bytes.as_slice(), text.as_bytes()] {
                let _ = adapter::message(protocol, body, &context, NOW);
                let mut translator = adapter::translator(protocol, &context, NOW, LARGEST_EVENT).unwrap();
                grammar(&crate::run::parsed(&translator.whole(body)), &text);
            }
        }
    }
}
