//! A line of the log as an object: `ts`, `level`, `msg`, then what else is said of it, all at the top.

use std::fmt::{self, Debug, Write as _};

use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_core::json;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

pub struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        let Said { message, rest } = said;
        let (ts, level) = (SystemClock.now(), event.metadata().level());
        write!(writer, r#"{{"ts":"{ts}","level":"{level}""#)?;
        if !message.is_empty() {
            write!(writer, r#","msg":{message}"#)?;
        }
        writeln!(writer, "{rest}}}")
    }
}

/// What an event says, as JSON: its message, and its other fields with a comma before each.
#[derive(Default)]
struct Said {
    message: String,
    rest: String,
}

impl Said {
    fn text(&mut self, field: &Field, text: &str) {
        let mut quoted = vec![b'"'];
        json::within(&mut quoted, text);
        quoted.push(b'"');
        self.put(field, &String::from_utf8(quoted).unwrap_or_default());
    }

    fn put(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            // Names are written in our own code and need no escapes.
            let _ = write!(self.rest, r#","{}":{value}"#, field.name());
        }
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, &value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, if value { "true" } else { "false" });
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // There is no word for those that are no numbers.
        if value.is_finite() {
            self.put(field, &value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(piece);
            Ok(piece.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_one_object_with_the_names_that_were_promised() {
        let kept = Kept::default();
        let writer = kept.clone();
        let layer = tracing_subscriber::fmt::layer().event_format(Lines).with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let nothing: Option<&str> = None;
            tracing::warn!(count = 3, share = 0.5, is_on = true, error = %"a \"quote\"\n", nothing, "it is {}", "so");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!((text.lines().count(), text.ends_with('\n')), (1, true), "{text}");
        let mut line: Value = serde_json::from_str(&text).unwrap();
        let ts = line.as_object_mut().unwrap().remove("ts").unwrap();
        assert!(ts.as_str().unwrap().ends_with('Z'), "{ts}");
        let expected = json!({"level": "WARN", "msg": "it is so", "count": 3, "share": 0.5, "is_on": true, "error": "a \"quote\"\n"});
        assert_eq!(line, expected);
    }
}
