//! Quirks of the stream itself: the same events in bytes that are allowed, rare, and often misread.

use bytes::Bytes;

use crate::quirk::Quirk;

/// The parts to write for these events; `None` when the quirk is not one of framing.
pub(crate) fn odd(quirk: Quirk, events: &[Bytes]) -> Option<Vec<Bytes>> {
    let rewritten = |rewrite: &dyn Fn(&str) -> String| {
        // What we render is text; anything else would come through as it is.
        events
            .iter()
            .map(|event| std::str::from_utf8(event).map_or_else(|_| event.clone(), |text| rewrite(text).into()))
            .collect()
    };
    Some(match quirk {
        Quirk::Crlf => rewritten(&crlf),
        Quirk::Cr => rewritten(&|event| event.replace('\n', "\r")),
        Quirk::Comments => rewritten(&|event| format!(": PROCESSING\n\n:\n{event}")),
        Quirk::MultilineData => rewritten(&multiline),
        Quirk::UnknownEvents => {
            rewritten(&|event| format!("event: future_event\ndata: {{\"type\":\"future_event\",\"x\":1}}\n\n{event}"))
        }
        Quirk::NoEventName => rewritten(&without_name),
        Quirk::Bom => {
            std::iter::once(Bytes::from_static("\u{feff}".as_bytes())).chain(events.iter().cloned()).collect()
        }
        Quirk::NoFinalNewline => {
            let mut events = events.to_vec();
            if let Some(last) = events.last_mut() {
                last.truncate(last.trim_ascii_end().len());
            }
            events
        }
        Quirk::SplitBytes => {
            let all = Bytes::from(events.concat());
            (0..all.len()).map(|at| all.slice(at..=at)).collect()
        }
        _ => return None,
    })
}

fn crlf(event: &str) -> String {
    let lines = event.trim_end().lines().map(|line| line.replacen(": ", ":", 1));
    lines.collect::<Vec<_>>().join("\r\n") + "\r\n\r\n"
}

/// Cuts the JSON where white space may stand: after its first brace and before its last.
fn multiline(event: &str) -> String {
    let lines = event.trim_end().lines().map(|line| {
        match line.strip_prefix("data: {").and_then(|rest| rest.strip_suffix('}')) {
            Some(inner) => format!("data: {{\ndata: {inner}\ndata: }}"),
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n") + "\n\n"
}

fn without_name(event: &str) -> String {
    match event.split_once('\n') {
        Some((name, rest)) if name.starts_with("event: ") => rest.to_owned(),
        _ => event.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_odd_and_the_events_the_same() {
        let events = [Bytes::from("event: a\ndata: {\"x\":\"ä\"}\n\n"), Bytes::from("data: [DONE]\n\n")];
        for (quirk, expected) in [
            (Quirk::Crlf, "event:a\r\ndata:{\"x\":\"ä\"}\r\n\r\ndata:[DONE]\r\n\r\n"),
            (Quirk::Cr, "event: a\rdata: {\"x\":\"ä\"}\r\rdata: [DONE]\r\r"),
            (
                Quirk::Comments,
                ": PROCESSING\n\n:\nevent: a\ndata: {\"x\":\"ä\"}\n\n: PROCESSING\n\n:\ndata: [DONE]\n\n",
            ),
            (Quirk::MultilineData, "event: a\ndata: {\ndata: \"x\":\"ä\"\ndata: }\n\ndata: [DONE]\n\n"),
            (Quirk::Bom, "\u{feff}event: a\ndata: {\"x\":\"ä\"}\n\ndata: [DONE]\n\n"),
            (Quirk::NoEventName, "data: {\"x\":\"ä\"}\n\ndata: [DONE]\n\n"),
            (Quirk::NoFinalNewline, "event: a\ndata: {\"x\":\"ä\"}\n\ndata: [DONE]"),
            (Quirk::SplitBytes, "event: a\ndata: {\"x\":\"ä\"}\n\ndata: [DONE]\n\n"),
        ] {
            assert_eq!(odd(quirk, &events).unwrap().concat(), expected.as_bytes(), "{}", quirk.name());
        }
        assert!(odd(Quirk::SplitBytes, &events).unwrap().iter().all(|part| part.len() == 1));
        assert!(odd(Quirk::NoUsage, &events).is_none());
    }
}
