//! Which betas reach an upstream: the client's, and those that a member of its request cannot do without. Those who resell
//! the models refuse a call for a beta they do not know, so they get the ones that are known there, and what a missing
//! beta would have allowed leaves the body with it.

use tidegate_wire::envelope::Traits;

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
    row(CONTEXT_EDITS, [true, false, true], &["context_management"]),
    row(COMPACTION, [true, false, true], &["context_management"]),
    row("computer-use-2025-01-24", [true, true, true], &[]),
    row("computer-use-2025-11-24", [true, true, true], &[]),
    row("effort-2025-11-24", [true, true, false], &[]),
    row(FINE_STREAMING, [true, true, false], &[]),
    row("structured-outputs-2025-11-13", [false, true, false], &[]),
    row("tool-search-tool-2025-10-19", [true, false, true], &[]),
    row("thinking-binding-controls-2026-08-01", [true, true, true], &[]),
    row(TOOL_CHANGES, [true, false, false], &[]),
    row(TURN_CONFIG, [true, false, false], &[]),
    row("web-search-2025-03-05", [false, false, true], &[]),
    row("fast-mode-*", [false, false, false], &["speed"]),
];

const CONTEXT_EDITS: &str = "context-management-2025-06-27";
const COMPACTION: &str = "compact-2026-01-12";
const FINE_STREAMING: &str = "fine-grained-tool-streaming-2025-05-14";
const TOOL_CHANGES: &str = "mid-conversation-tool-changes-2026-07-01";
const TURN_CONFIG: &str = "mid-conversation-output-config-2026-07-01";

/// What is left of the client's betas, with what its request needs besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept<'a> {
    pub betas: Vec<&'a str>,
    /// `dropped:…` of those that are gone.
    pub warnings: Vec<String>,
    /// Members of the request that go with them.
    pub members: Vec<&'static str>,
    pub withheld: Withheld,
}

/// What stands deeper in a request than its members and is refused where its beta is not taken, whoever asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Withheld {
    /// `scope` of a cache marker.
    pub cache_scope: bool,
    /// `eager_input_streaming` of a tool.
    pub eager_streaming: bool,
    /// Tools added and removed between turns.
    pub tool_changes: bool,
    /// `output_config` of an instruction between turns.
    pub turn_config: bool,
}

impl Withheld {
    fn of(policy: Betas, unknown: &dyn Fn(&str) -> bool) -> Self {
        let is_taken = |beta: &str| is_taken(row_of(beta), policy);
        match policy {
            // What else they lack is said by their card.
            Betas::None => Self { tool_changes: true, ..Self::default() },
            Betas::Converse => Self::default(),
            Betas::All | Betas::Bedrock | Betas::Vertex => Self {
                cache_scope: policy != Betas::All,
                eager_streaming: !is_taken(FINE_STREAMING),
                tool_changes: !is_taken(TOOL_CHANGES) || unknown(TOOL_CHANGES),
                turn_config: !is_taken(TURN_CONFIG) || unknown(TURN_CONFIG),
            },
        }
    }
}

/// The betas that an upstream gets: those of a merged header value, and those that a request of these traits needs there.
/// `unknown` are those that this upstream has refused before.
pub fn kept<'a>(given: Option<&'a str>, policy: Betas, traits: Traits, unknown: &dyn Fn(&str) -> bool) -> Kept<'a> {
    let mut kept = given_and_taken(given, policy, unknown);
    kept.withheld = Withheld::of(policy, unknown);
    // Who takes none knows the members without them, or not at all; what goes through Converse is edited here.
    if matches!(policy, Betas::None | Betas::Converse) {
        return kept;
    }
    // Clients need no beta for these members here.
    for (is_there, beta) in [(traits.context_edits, CONTEXT_EDITS), (traits.compaction, COMPACTION)] {
        if !is_there || kept.betas.contains(&beta) {
            continue;
        }
        if unknown(beta) {
            kept.members.push("context_management");
        } else {
            kept.betas.push(beta);
        }
    }
    if traits.speed && policy != Betas::All && !kept.members.contains(&"speed") {
        kept.members.push("speed");
    }
    kept
}

fn given_and_taken<'a>(given: Option<&'a str>, policy: Betas, unknown: &dyn Fn(&str) -> bool) -> Kept<'a> {
    let mut kept = Kept::default();
    for beta in given.into_iter().flat_map(|given| given.split(',')).map(str::trim).filter(|beta| !beta.is_empty()) {
        // An older name of the same thing.
        let known = if beta == "advanced-tool-use-2025-11-20" { "tool-search-tool-2025-10-19" } else { beta };
        let row = row_of(known);
        let taken = is_taken(row, policy);
        // Upstreams quote what they do not know: whatever could end the quotation is kept from them.
        let is_plain = beta.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if taken && is_plain && !unknown(beta) {
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

fn row_of(beta: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| match row.name.strip_suffix('*') {
        Some(start) => beta.starts_with(start),
        None => row.name == beta,
    })
}

fn is_taken(row: Option<&Row>, policy: Betas) -> bool {
    match policy {
        Betas::All => true,
        Betas::None => false,
        Betas::Bedrock => row.is_some_and(|row| row.bedrock),
        Betas::Converse => row.is_some_and(|row| row.converse),
        Betas::Vertex => row.is_some_and(|row| row.vertex),
    }
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
        let bedrock = kept(given, Betas::Bedrock, Traits::default(), &none);
        assert_eq!(bedrock.betas, ["context-1m-2025-08-07"]);
        assert_eq!(bedrock.members, ["speed"]);
        assert_eq!(bedrock.warnings.len(), 3);
        assert_eq!(
            kept(given, Betas::Vertex, Traits::default(), &none).betas,
            ["context-1m-2025-08-07", "interleaved-thinking-2025-05-14"]
        );
        assert_eq!(kept(given, Betas::Converse, Traits::default(), &none).betas, ["context-1m-2025-08-07"]);
        let formats = Some("structured-outputs-2025-11-13,tool-search-tool-2025-10-19");
        assert_eq!(kept(formats, Betas::Converse, Traits::default(), &none).betas, ["structured-outputs-2025-11-13"]);
        assert_eq!(kept(formats, Betas::Bedrock, Traits::default(), &none).betas, ["tool-search-tool-2025-10-19"]);
        assert_eq!(
            kept(given, Betas::All, Traits::default(), &none).betas.len(),
            4,
            "Anthropic gets all of them, also unknown ones"
        );
        assert_eq!(kept(given, Betas::None, Traits::default(), &none), nothing(Betas::None));
    }

    /// What is left where nothing is asked for.
    fn nothing(policy: Betas) -> Kept<'static> {
        Kept { withheld: Withheld::of(policy, &none), ..Kept::default() }
    }

    #[test]
    fn what_a_beta_allows_inside_of_a_member_is_withheld_where_it_is_not_taken() {
        let withheld = |policy| kept(None, policy, Traits::default(), &none).withheld;
        assert_eq!(withheld(Betas::All), Withheld::default());
        assert_eq!(withheld(Betas::Bedrock), Withheld { cache_scope: true, ..Withheld::default() });
        let all = Withheld { cache_scope: true, eager_streaming: true, tool_changes: true, turn_config: true };
        assert_eq!(withheld(Betas::Vertex), all);
        assert_eq!(withheld(Betas::None), Withheld { tool_changes: true, ..Withheld::default() });
        let refused = kept(None, Betas::All, Traits::default(), &|beta| beta == TOOL_CHANGES).withheld;
        assert_eq!(refused, Withheld { tool_changes: true, ..Withheld::default() });
    }

    #[test]
    fn a_beta_that_was_refused_is_not_sent_again() {
        let refused = |beta: &str| beta == "new-2027-01-01";
        let made = kept(Some("new-2027-01-01, context-1m-2025-08-07"), Betas::All, Traits::default(), &refused);
        assert_eq!(
            (made.betas, made.warnings),
            (vec!["context-1m-2025-08-07"], vec!["dropped:new-2027-01-01".to_owned()])
        );
    }

    #[test]
    fn a_member_brings_the_beta_that_allows_it_and_goes_where_there_is_none() {
        let edits = Traits { context_edits: true, compaction: true, ..Traits::default() };
        for policy in [Betas::All, Betas::Bedrock, Betas::Vertex] {
            assert_eq!(kept(None, policy, edits, &none).betas, [CONTEXT_EDITS, COMPACTION], "{policy:?}");
            let named = kept(Some(COMPACTION), policy, edits, &none);
            assert_eq!(named.betas, [COMPACTION, CONTEXT_EDITS], "{policy:?}: never twice");
            let clearing = Traits { compaction: false, ..edits };
            assert_eq!(kept(None, policy, clearing, &none).betas, [CONTEXT_EDITS], "{policy:?}");
            let refused = kept(None, policy, clearing, &|beta| beta == CONTEXT_EDITS);
            assert_eq!((refused.betas, refused.members), (vec![], vec!["context_management"]), "{policy:?}");
        }
        for policy in [Betas::None, Betas::Converse] {
            assert_eq!(kept(None, policy, edits, &none), nothing(policy), "{policy:?}");
        }
        let fast = Traits { speed: true, ..Traits::default() };
        for policy in [Betas::Bedrock, Betas::Vertex] {
            assert_eq!(kept(None, policy, fast, &none).members, ["speed"], "{policy:?}");
            assert_eq!(kept(Some("fast-mode-2026-02-01"), policy, fast, &none).members, ["speed"], "{policy:?}");
        }
        assert_eq!(kept(None, Betas::All, fast, &none), Kept::default());
    }
}
