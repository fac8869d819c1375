//! Bodies that were made here of another format. Much is usual there that Claude refuses: a temperature beside thinking, bounds
//! in the schema of an answer or of a strict tool, a conversation that the model begins. A body in Claude's own format is for
//! Claude to judge.

use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_wire::envelope::Traits;
use tidegate_wire::json::{self, Members, quoted};

use super::edit::{NO_THINKING, Rules, push_member};
use crate::translate::conversation::BEGINNING;
use crate::translate::schema::{self, Strict};

/// What a tool says that is to be followed to the letter; a body that was made here has no spaces between its parts.
const STRICT: &str = r#""strict":true"#;
/// Below this Claude refuses to sample while it thinks.
const LEAST_TOP_P: f64 = 0.95;

/// The body as Claude takes it, and what was changed for that; nothing where it is right as it is.
pub(super) fn fitted(body: &Bytes, traits: Traits, rules: &Rules<'_>) -> Option<(Bytes, Vec<String>)> {
    let text = std::str::from_utf8(body).ok().filter(|_| rules.is_made && !rules.card.foreign)?;
    let is_concerned = (traits.thinking && (traits.sampling || traits.forced_choice))
        || text.contains(r#""stop_sequences""#)
        || text.contains(r#""messages":[{"role":"assistant""#)
        || text.contains(r#""json_schema""#)
        || text.contains(STRICT);
    if !is_concerned {
        return None;
    }
    let members = serde_json::from_str::<&RawValue>(text).ok().and_then(Members::of)?;
    let mut fit = Fit { rules, warnings: Vec::new(), is_changed: false };
    let made = fit.body(&members);
    fit.is_changed.then(|| (made.into(), fit.warnings))
}

struct Fit<'r> {
    rules: &'r Rules<'r>,
    warnings: Vec<String>,
    is_changed: bool,
}

impl Fit<'_> {
    fn changed(&mut self, warning: &str) {
        self.is_changed = true;
        if !self.warnings.iter().any(|known| known == warning) {
            self.warnings.push(warning.to_owned());
        }
    }

    fn body(&mut self, members: &Members<'_>) -> String {
        let word = |name: &str| Members::of(members.get(name)?)?.get("type").and_then(json::string);
        let mut thinks = matches!(word("thinking").as_deref(), Some("enabled" | "adaptive"));
        let is_forced = self.rules.card.forced_choice && matches!(word("tool_choice").as_deref(), Some("any" | "tool"));
        let is_stopped = thinks && is_forced && self.rules.card.can_stop_thinking();
        if is_stopped {
            thinks = false;
            self.changed("disabled:thinking");
        }
        let mut out = String::from("{");
        for (name, value) in &members.0 {
            match name.as_ref() {
                "thinking" if is_stopped => push_member(&mut out, name, NO_THINKING),
                "temperature" | "top_p" | "top_k" if thinks && !is_taken(name, value) => {
                    self.changed(&format!("dropped:{name}"));
                }
                "stop_sequences" => {
                    if let Some(stops) = self.stops(value) {
                        push_member(&mut out, name, &stops);
                    }
                }
                "messages" => push_member(&mut out, name, &self.begun(value)),
                "tools" if value.get().contains(STRICT) => push_member(&mut out, name, &self.tools(value)),
                "output_config" => push_member(&mut out, name, &self.output_config(value)),
                _ => push_member(&mut out, name, value.get()),
            }
        }
        out.push('}');
        out
    }

    /// Those that it may stop at: blank ones it refuses.
    fn stops(&mut self, value: &RawValue) -> Option<String> {
        let stops = json::elements(value)?;
        let says = |stop: &&&RawValue| json::string(stop).is_none_or(|stop| !stop.trim().is_empty());
        let kept: Vec<&str> = stops.iter().filter(says).map(|stop| stop.get()).collect();
        if kept.len() == stops.len() {
            return Some(value.get().to_owned());
        }
        self.changed("dropped:stop_sequences");
        (!kept.is_empty()).then(|| format!("[{}]", kept.join(",")))
    }

    /// The first words are a person's.
    fn begun(&mut self, value: &RawValue) -> String {
        let first = json::elements(value).and_then(|messages| messages.first().copied());
        let role = first.and_then(Members::of).and_then(|first| first.get("role").and_then(json::string));
        match value.get().trim_start().strip_prefix('[') {
            Some(rest) if role.as_deref() == Some("assistant") => {
                self.is_changed = true;
                format!(r#"[{{"role":"user","content":{}}},{rest}"#, quoted(BEGINNING))
            }
            _ => value.get().to_owned(),
        }
    }

    fn output_config(&mut self, value: &RawValue) -> String {
        let whole = || value.get().to_owned();
        let Some(config) = Members::of(value) else { return whole() };
        let Some(format) = config.get("format").and_then(Members::of) else { return whole() };
        let Some(schema) = format.get("schema").and_then(|schema| schema::claude(schema.get())) else { return whole() };
        self.changed("changed:output_config.format");
        with(&config, "format", &with(&format, "schema", &schema))
    }

    /// Tools with what strict mode refuses told in words, or without it where it would refuse them all the same.
    fn tools(&mut self, value: &RawValue) -> String {
        let tools = json::elements(value).unwrap_or_default();
        let made: Vec<String> = tools.into_iter().map(|tool| self.tool(tool)).collect();
        format!("[{}]", made.join(","))
    }

    fn tool(&mut self, value: &RawValue) -> String {
        let whole = || value.get().to_owned();
        let Some(tool) = Members::of(value) else { return whole() };
        let is_strict = tool.get("strict").is_some_and(|strict| strict.get() == "true");
        let Some(schema) = tool.get("input_schema").filter(|_| is_strict) else { return whole() };
        match schema::claude_strict(schema.get()) {
            Strict::AsItIs => whole(),
            Strict::Told(schema) => {
                self.changed("changed:tools.input_schema");
                with(&tool, "input_schema", &schema)
            }
            Strict::Hint => {
                self.changed("dropped:strict");
                let mut out = String::from("{");
                for (name, value) in tool.0.iter().filter(|(name, _)| name != "strict") {
                    push_member(&mut out, name, value.get());
                }
                out.push('}');
                out
            }
        }
    }
}

/// An object with this member as it is to be.
fn with(members: &Members<'_>, changed: &str, to: &str) -> String {
    let mut out = String::from("{");
    for (name, value) in &members.0 {
        push_member(&mut out, name, if name == changed { to } else { value.get() });
    }
    out.push('}');
    out
}

/// Whether Claude takes it while it thinks.
fn is_taken(name: &str, value: &RawValue) -> bool {
    let number: Option<f64> = value.get().parse().ok();
    match name {
        _ if value.get() == "null" => true,
        "temperature" => number == Some(1.0),
        "top_p" => number.is_some_and(|number| number >= LEAST_TOP_P),
        _ => false,
    }
}

#[cfg(test)]
#[path = "made_tests.rs"]
mod tests;
