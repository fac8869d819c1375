//! The two text forms of metrics. OpenMetrics names a counter without its ending where it says what it is; the older form of
//! Prometheus names it as its lines do, and knows fewer kinds.

use std::fmt::Write as _;

/// How each is called in a header.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The form that a reader wants, by its `Accept` header, and how that is called. Who takes both, or says nothing, gets
/// OpenMetrics.
pub fn accepted(accept: Option<&str>, openmetrics: String) -> (&'static str, String) {
    let takes = |kind: &str| accept.is_some_and(|accept| accept.to_ascii_lowercase().contains(kind));
    match takes("text/plain") && !takes("application/openmetrics-text") {
        true => (PLAIN, plain(&openmetrics)),
        false => (OPENMETRICS, openmetrics),
    }
}

fn plain(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            help = said.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|said| said.split_once(' ')) {
            let (ending, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "gauge" | "histogram" | "summary" => ("", kind),
                _ => ("", "untyped"),
            };
            if let Some((_, text)) = help.take().filter(|(described, _)| *described == name) {
                let _ = writeln!(out, "# HELP {name}{ending} {text}");
            }
            let _ = writeln!(out, "# TYPE {name}{ending} {kind}");
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_calls Calls.\n# TYPE a_calls counter\na_calls_total{x=\"y\"} 3\n\
        # HELP a_took How long.\n# TYPE a_took histogram\n# UNIT a_took seconds\na_took_bucket{le=\"+Inf\"} 1\n\
        # HELP a_build What.\n# TYPE a_build info\na_build_info{v=\"1\"} 1\n# EOF\n";

    #[test]
    fn the_older_form_names_counters_as_their_lines_do() {
        let expected = "# HELP a_calls_total Calls.\n# TYPE a_calls_total counter\na_calls_total{x=\"y\"} 3\n\
            # HELP a_took How long.\n# TYPE a_took histogram\na_took_bucket{le=\"+Inf\"} 1\n\
            # HELP a_build_info What.\n# TYPE a_build_info gauge\na_build_info{v=\"1\"} 1\n";
        assert_eq!(plain(TEXT), expected);
    }

    #[test]
    fn a_reader_gets_the_form_that_it_takes() {
        let both = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for (accept, kind) in [
            (None, OPENMETRICS),
            (Some("*/*"), OPENMETRICS),
            (Some(both), OPENMETRICS),
            (Some("text/plain"), PLAIN),
            (Some("Text/Plain; version=0.0.4, */*"), PLAIN),
        ] {
            let (told, text) = accepted(accept, TEXT.to_owned());
            assert_eq!((told, text.contains("# EOF")), (kind, kind == OPENMETRICS), "{accept:?}");
        }
    }
}
