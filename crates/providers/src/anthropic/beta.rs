//! Which of the client's betas reach an upstream. Those who resell the models refuse a call for a beta they do not know,
//! so they get the ones that are known there, and what a missing beta would have allowed leaves the body with it.

use crate::platform::Betas;

/// One beta: where it is taken, and the members of a request that only it allows.
struct Row {
    /// Whole, or with a final `*` for every date.
    name: &'static str,
    bedrock: bool,
    converse: bool,
    vertex: bool,
    gates: &'static [&'static str],
}

/// `taken`: by Bedrock, by its Converse protocol, by Vertex.
const fn row(name: &'static str, taken: [bool; 3], gates: &'static [&'static str]) -> Row {
    let [bedrock, converse, vertex] = taken;
    Row { name, bedrock, converse, vertex, gates }
}

const ROWS: &[Row] = &[
    row("interleaved-thinking-2025-05-14", [false, false, true], &[]),
    row("context-1m-2025-08-07", [true, true, true], &[]),
    row("context-management-2025-06-27", [true, false, true], &["context_management"]),
    row("compact-2026-01-12", [true, false, true], &["context_management"]),
    row("computer-use-2025-01-24", [true, true, true], &[]),
    row("computer-use-2025-11-24", [true, true, true], &[]),
    row("effort-2025-11-24", [true, true, false], &[]),
    row("fine-grained-tool-streaming-2025-05-14", [true, true, false], &[]),
    row("structured-outputs-2025-11-13", [false, true, false], &[]),
    row("tool-search-tool-2025-10-19", [true, false, true], &[]),
    row("thinking-binding-controls-2026-08-01", [true, true, true], &[]),
    row("mid-conversation-tool-changes-2026-07-01", [true, false, false], &[]),
    row("mid-conversation-output-config-2026-07-01", [true, false, false], &[]),
    row("web-search-2025-03-05", [false, false, true], &[]),
    row("fast-mode-*", [false, false, false], &["speed"]),
];

/// What is left of the client's betas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept<'a> {
    pub betas: Vec<&'a str>,
    /// `dropped:…` of those that are gone.
    pub warnings: Vec<String>,
    /// Members of the request that go with them.
    pub members: Vec<&'static str>,
}

/// The betas of a merged header value that an upstream gets. `unknown` are those that this upstream has refused before.
pub fn kept<'a>(given: Option<&'a str>, policy: Betas, unknown: &dyn Fn(&str) -> bool) -> Kept<'a> {
    let mut kept = Kept::default();
    for beta in given.into_iter().flat_map(|given| given.split(',')).map(str::trim).filter(|beta| !beta.is_empty()) {
        // An older name of the same thing.
        let known = if beta == "advanced-tool-use-2025-11-20" { "tool-search-tool-2025-10-19" } else { beta };
        let row = ROWS.iter().find(|row| match row.name.strip_suffix('*') {
            Some(start) => known.starts_with(start),
            None => row.name == known,
        });
        let taken = match policy {
            Betas::All => true,
            Betas::None => false,
            Betas::Bedrock => row.is_some_and(|row| row.bedrock),
            Betas::Converse => row.is_some_and(|row| row.converse),
            Betas::Vertex => row.is_some_and(|row| row.vertex),
        };
        if taken && !unknown(beta) {
            kept.betas.push(if policy == Betas::All { beta } else { known });
            continue;
        }
        // Most servers that take none speak without them what the beta was for; that is nothing to warn of.
        if policy != Betas::None {
            kept.warnings.push(format!("dropped:{beta}"));
            kept.members.extend(row.map_or(&[][..], |row| row.gates));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> bool {
        false
    }

    #[test]
    fn p75_only_betas_that_are_known_there_reach_bedrock_and_vertex() {
        let given =
            Some("context-1m-2025-08-07,files-api-2025-04-14,interleaved-thinking-2025-05-14,fast-mode-2026-01-01");
        let bedrock = kept(given, Betas::Bedrock, &none);
        assert_eq!(bedrock.betas, ["context-1m-2025-08-07"]);
        assert_eq!(bedrock.members, ["speed"]);
        assert_eq!(bedrock.warnings.len(), 3);
        assert_eq!(
            kept(given, Betas::Vertex, &none).betas,
            ["context-1m-2025-08-07", "interleaved-thinking-2025-05-14"]
        );
        assert_eq!(kept(given, Betas::Converse, &none).betas, ["context-1m-2025-08-07"]);
        let formats = Some("structured-outputs-2025-11-13,tool-search-tool-2025-10-19");
        assert_eq!(kept(formats, Betas::Converse, &none).betas, ["structured-outputs-2025-11-13"]);
        assert_eq!(kept(formats, Betas::Bedrock, &none).betas, ["tool-search-tool-2025-10-19"]);
        assert_eq!(kept(given, Betas::All, &none).betas.len(), 4, "Anthropic gets all of them, also unknown ones");
        assert_eq!(kept(given, Betas::None, &none), Kept::default());
    }

    #[test]
    fn a_beta_that_was_refused_is_not_sent_again() {
        let refused = |beta: &str| beta == "new-2027-01-01";
        let made = kept(Some("new-2027-01-01, context-1m-2025-08-07"), Betas::All, &refused);
        assert_eq!(
            (made.betas, made.warnings),
            (vec!["context-1m-2025-08-07"], vec!["dropped:new-2027-01-01".to_owned()])
        );
    }
}
