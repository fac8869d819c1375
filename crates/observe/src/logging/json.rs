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
        let mut line = Line(Vec::with_capacity(USUAL));
        let (ts, level) = (SystemClock.now(), event.metadata().level());
        line.0.extend_from_slice(br#"{"ts":""#);
        write!(line, "{ts}")?;
        line.0.extend_from_slice(br#"","level":""#);
        line.0.extend_from_slice(level.as_str().as_bytes());
        line.0.push(b'"');
        // The message is always the first.
        event.record(&mut line);
        line.0.extend_from_slice(b"}\n");
        writer.write_str(str::from_utf8(&line.0).map_err(|_| fmt::Error)?)
    }
}

/// Room for the line of a finished request: it is written with every one of them.
const USUAL: usize = 1024;

/// A line that is being written. Texts that are formatted into it are escaped on their way.
struct Line(Vec<u8>);

impl Line {
    /// The name of a field; its value is to follow. Names are written in our own code and need no escapes.
    fn name(&mut self, field: &Field) -> &mut Vec<u8> {
        let name = if field.name() == "message" { "msg" } else { field.name() };
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        &mut self.0
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        json::within(&mut self.0, piece);
        Ok(())
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.name(field).push(b'"');
        // One that fails has said what it could.
        let _ = write!(self, "{value:?}");
        self.0.push(b'"');
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let line = self.name(field);
        line.push(b'"');
        json::within(line, value);
        line.push(b'"');
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        json::number(self.name(field), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        json::count(self.name(field), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.name(field).extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // There is no word for those that are no numbers.
        if value.is_finite() {
            self.name(field);
            let _ = write!(self, "{value}");
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
        assert!(text.contains(r#","level":"WARN","msg":"it is so","count":3,"#), "{text}");
        let mut line: Value = serde_json::from_str(&text).unwrap();
        let ts = line.as_object_mut().unwrap().remove("ts").unwrap();
        assert!(ts.as_str().unwrap().ends_with('Z'), "{ts}");
        let expected = json!({"level": "WARN", "msg": "it is so", "count": 3, "share": 0.5, "is_on": true, "error": "a \"quote\"\n"});
        assert_eq!(line, expected);
    }
}
