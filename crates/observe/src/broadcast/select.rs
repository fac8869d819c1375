//! Which requests a destination is told of: by workspace and key, by rules, by chance. The chance is a hash, so whole
//! sessions stay together and a repeated decision is the same one.

use aws_lc_rs::digest;
use regex::{Regex, RegexBuilder};
use serde_json::Value;
use tidegate_core::{Exchange, Money};

use super::{Maker, Said, Scope};

const MOST_GROUPS: usize = 20;
const MOST_RULES: usize = 20;
const LONGEST_REGEX: usize = 1_000;
const MOST_COMPILED: usize = 1 << 20;

const TEXTS: [&str; 8] =
    ["model", "provider", "session_id", "user_id", "api_key_name", "finish_reason", "input", "output"];
const NUMBERS: [&str; 4] = ["total_cost", "total_tokens", "prompt_tokens", "completion_tokens"];

/// Rules; a request passes when one of the groups passes.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    groups: Vec<Group>,
}

#[derive(Clone, Debug)]
struct Group {
    needs_all: bool,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    field: &'static str,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Exists(bool),
    /// The text, in small letters; whether it must not be so.
    Text(How, String, bool),
    Matches(Regex),
    Number(Sense, f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Equals,
    Contains,
    Starts,
    Ends,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sense {
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    Equal,
    Unequal,
}

/// What is wrong with rules, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub path: String,
    pub message: String,
}

fn mistake<T>(path: impl Into<String>, message: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake { path: path.into(), message: message.into() })
}

impl Filter {
    /// Reads rules as they are written; `None` where they let everything through.
    pub fn read(value: &Value) -> Result<Option<Self>, Mistake> {
        let Value::Object(members) = value else { return mistake("", "must be an object") };
        match members.get("enabled") {
            None | Some(Value::Bool(_)) => {}
            Some(_) => return mistake("enabled", "must be true or false"),
        }
        let groups = match members.get("groups") {
            None | Some(Value::Null) => &[][..],
            Some(Value::Array(groups)) => groups,
            Some(_) => return mistake("groups", "must be an array"),
        };
        if groups.len() > MOST_GROUPS {
            return mistake("groups", format!("must have at most {MOST_GROUPS} entries"));
        }
        let groups: Vec<Group> = groups
            .iter()
            .enumerate()
            .map(|(place, group)| Group::read(group, &format!("groups[{place}]")))
            .collect::<Result<_, _>>()?;
        let is_off = members.get("enabled") == Some(&Value::Bool(false)) || groups.is_empty();
        Ok((!is_off).then_some(Self { groups }))
    }

    /// With the name of the key, and what was paid.
    pub fn passes(&self, exchange: &Exchange, said: &Said, (key_name, paid): (&str, Option<Money>)) -> bool {
        let facts = Facts { exchange, said, key_name, paid };
        self.groups.iter().any(|group| match group.needs_all {
            true => group.rules.iter().all(|rule| rule.holds(&facts)),
            false => group.rules.iter().any(|rule| rule.holds(&facts)),
        })
    }

    /// Whether it looks at what was said.
    pub fn reads_content(&self) -> bool {
        let mut rules = self.groups.iter().flat_map(|group| &group.rules);
        rules.any(|rule| matches!(rule.field, "input" | "output"))
    }
}

impl Group {
    fn read(value: &Value, path: &str) -> Result<Self, Mistake> {
        let Value::Object(members) = value else { return mistake(path, "must be an object") };
        let needs_all = match members.get("logic").map(|logic| logic.as_str()) {
            None | Some(Some("and")) => true,
            Some(Some("or")) => false,
            Some(_) => return mistake(format!("{path}.logic"), "must be one of and, or"),
        };
        let Some(Value::Array(rules)) = members.get("rules") else {
            return mistake(format!("{path}.rules"), "must be an array");
        };
        if rules.is_empty() || rules.len() > MOST_RULES {
            return mistake(format!("{path}.rules"), format!("must have 1 to {MOST_RULES} entries"));
        }
        let read = |(place, rule): (usize, &Value)| Rule::read(rule, &format!("{path}.rules[{place}]"));
        Ok(Self { needs_all, rules: rules.iter().enumerate().map(read).collect::<Result<_, _>>()? })
    }
}

impl Rule {
    fn read(value: &Value, path: &str) -> Result<Self, Mistake> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let all = TEXTS.iter().chain(&NUMBERS);
        let Some(field) = all.clone().find(|field| **field == text("field")).copied() else {
            let all: Vec<&str> = all.copied().collect();
            return mistake(format!("{path}.field"), format!("must be one of {}", all.join(", ")));
        };
        let at_value = format!("{path}.value");
        let is_number = NUMBERS.contains(&field);
        let word = || value.get("value").and_then(Value::as_str);
        let said = |how, is_not| match word() {
            Some(word) => Ok(Test::Text(how, word.to_lowercase(), is_not)),
            None => mistake(at_value.clone(), "must be a string"),
        };
        let figure = |sense| match value.get("value").and_then(Value::as_f64) {
            Some(figure) => Ok(Test::Number(sense, figure)),
            None => mistake(at_value.clone(), "must be a number"),
        };
        let test = match (text("operator"), is_number) {
            ("exists", _) => Test::Exists(true),
            ("not_exists", _) => Test::Exists(false),
            ("equals", false) => said(How::Equals, false)?,
            ("not_equals", false) => said(How::Equals, true)?,
            ("contains", false) => said(How::Contains, false)?,
            ("not_contains", false) => said(How::Contains, true)?,
            ("starts_with", false) => said(How::Starts, false)?,
            ("ends_with", false) => said(How::Ends, false)?,
            ("regex", false) => match word().filter(|word| word.chars().count() <= LONGEST_REGEX) {
                Some(pattern) => match RegexBuilder::new(pattern).size_limit(MOST_COMPILED).build() {
                    Ok(pattern) => Test::Matches(pattern),
                    Err(_) => return mistake(at_value, "must be a regular expression without look-around"),
                },
                None => return mistake(at_value, format!("must be a string of at most {LONGEST_REGEX} characters")),
            },
            ("equals", true) => figure(Sense::Equal)?,
            ("not_equals", true) => figure(Sense::Unequal)?,
            ("gt", true) => figure(Sense::More)?,
            ("gte", true) => figure(Sense::MoreOrEqual)?,
            ("lt", true) => figure(Sense::Less)?,
            ("lte", true) => figure(Sense::LessOrEqual)?,
            _ => return mistake(format!("{path}.operator"), format!("does not fit {field}")),
        };
        Ok(Self { field, test })
    }

    fn holds(&self, facts: &Facts<'_>) -> bool {
        match &self.test {
            Test::Exists(wanted) => {
                let exists = facts.text(self.field).is_some() || facts.number(self.field).is_some();
                exists == *wanted
            }
            Test::Text(how, word, is_not) => {
                let Some(text) = facts.text(self.field) else { return *is_not };
                let text = text.to_lowercase();
                let holds = match how {
                    How::Equals => text == *word,
                    How::Contains => text.contains(word.as_str()),
                    How::Starts => text.starts_with(word.as_str()),
                    How::Ends => text.ends_with(word.as_str()),
                };
                holds != *is_not
            }
            Test::Matches(pattern) => facts.text(self.field).is_some_and(|text| pattern.is_match(&text)),
            Test::Number(sense, wanted) => {
                let Some(figure) = facts.number(self.field) else { return *sense == Sense::Unequal };
                let order = figure.partial_cmp(wanted);
                match sense {
                    Sense::Less => order.is_some_and(|order| order.is_lt()),
                    Sense::LessOrEqual => order.is_some_and(|order| order.is_le()),
                    Sense::More => order.is_some_and(|order| order.is_gt()),
                    Sense::MoreOrEqual => order.is_some_and(|order| order.is_ge()),
                    Sense::Equal => order.is_some_and(|order| order.is_eq()),
                    Sense::Unequal => !order.is_some_and(|order| order.is_eq()),
                }
            }
        }
    }
}

struct Facts<'a> {
    exchange: &'a Exchange,
    said: &'a Said,
    key_name: &'a str,
    paid: Option<Money>,
}

impl Facts<'_> {
    fn text(&self, field: &str) -> Option<String> {
        let exchange = self.exchange;
        let own = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        match field {
            "model" => own(&exchange.model),
            "provider" => own(&exchange.provider),
            "session_id" => exchange.session.as_deref().and_then(own),
            "user_id" => exchange.user.as_deref().and_then(own),
            "api_key_name" => own(self.key_name),
            "finish_reason" => exchange.stop_reason.as_deref().and_then(own),
            "input" => self.said.request.as_ref().map(|request| texts(&request["messages"])),
            "output" => Some(self.said.answer.iter().map(texts).collect::<Vec<_>>().join("\n"))
                .filter(|_| !self.said.answer.is_empty()),
            _ => None,
        }
    }

    fn number(&self, field: &str) -> Option<f64> {
        let usage = &self.exchange.usage;
        let prompt = usage.input + usage.cache_read + usage.cache_write + usage.cache_write_1h;
        match field {
            "total_cost" => self.paid.map(|paid| paid.0 as f64 / 1e9),
            "total_tokens" => Some((prompt + usage.output) as f64),
            "prompt_tokens" => Some(prompt as f64),
            "completion_tokens" => Some(usage.output as f64),
            _ => None,
        }
    }
}

/// All texts of a value, one after the other.
fn texts(value: &Value) -> String {
    fn add(value: &Value, out: &mut String) {
        match value {
            Value::String(text) => {
                out.push_str(text);
                out.push('\n');
            }
            Value::Array(values) => values.iter().for_each(|value| add(value, out)),
            Value::Object(members) => {
                for name in ["content", "text", "thinking", "input"] {
                    members.get(name).into_iter().for_each(|value| add(value, out));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut out = String::new();
    add(value, &mut out);
    out
}

impl Scope {
    /// Whether it may want to hear of a request, as far as that can be told without reading it.
    pub fn may_admit(&self, destination: &str, exchange: &Exchange, said: &Said) -> bool {
        self.workspace.as_ref().is_none_or(|workspace| *workspace == exchange.workspace)
            && self.keys.as_ref().is_none_or(|keys| keys.contains(&exchange.key))
            && (self.share >= 1.0 || is_drawn(self.share, destination, unit(exchange, said)))
    }

    /// Whether a request belongs to what a destination wants to hear of.
    pub fn admits(&self, destination: &str, exchange: &Exchange, said: &Said, maker: Maker<'_>) -> bool {
        let passes = |filter: &Filter| filter.passes(exchange, said, (maker.key_name, maker.paid(exchange)));
        self.may_admit(destination, exchange, said) && self.filter.as_ref().is_none_or(passes)
    }
}

/// What is drawn as a whole: the session, else the trace, by the body or by its header, else the request with all of its
/// turns.
fn unit<'a>(exchange: &'a Exchange, said: &'a Said) -> &'a str {
    let alone = exchange.parent.as_ref().unwrap_or(&exchange.id).as_str();
    let trace = said.named("trace_id").or_else(|| said.parent.as_ref().map(|(trace, _)| trace.as_str()));
    exchange.session.as_deref().or(trace).unwrap_or(alone)
}

fn is_drawn(share: f64, destination: &str, unit: &str) -> bool {
    if share >= 1.0 {
        return true;
    }
    let hash = digest::digest(&digest::SHA256, format!("{destination}|{unit}").as_bytes());
    let first: [u8; 8] = hash.as_ref()[..8].try_into().expect("a hash has more");
    (u64::from_be_bytes(first) as f64) / 2_f64.powi(64) < share
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_core::{GenerationId, OrganisationId, Timestamp, Usage, WorkspaceId};

    use super::*;

    fn exchange() -> Exchange {
        let now = Timestamp(1_790_000_000_000);
        let (organisation, workspace) = (OrganisationId("o".into()), WorkspaceId("w".into()));
        let key = tidegate_core::KeyHash::of(b"k");
        let mut exchange =
            Exchange::new(GenerationId::new(now), organisation, workspace, key, "vendor/Model".into(), now);
        exchange.usage = Usage { input: 100, cache_read: 20, output: 30, ..Usage::default() };
        exchange.cost = Some(Money(2_000_000_000));
        exchange
    }

    fn passes(rules: Value) -> bool {
        let said = Said {
            request: Some(json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "Tell me"}]}]})),
            answer: vec![json!({"type": "text", "text": "All right"})],
            ..Said::default()
        };
        let filter = Filter::read(&rules).unwrap();
        filter.is_none_or(|filter| filter.passes(&exchange(), &said, ("prod key", exchange().cost)))
    }

    #[test]
    fn each_rule_looks_at_its_field() {
        let one = |field: &str, operator: &str, value: Value| json!({"groups": [{"rules": [{"field": field, "operator": operator, "value": value}]}]});
        for (field, operator, value, expected) in [
            ("model", "equals", json!("VENDOR/model"), true),
            ("model", "not_equals", json!("vendor/model"), false),
            ("model", "starts_with", json!("vendor/"), true),
            ("model", "ends_with", json!("x"), false),
            ("model", "regex", json!("^vendor/M"), true),
            ("model", "regex", json!("^VENDOR"), false),
            ("api_key_name", "contains", json!("PROD"), true),
            ("input", "contains", json!("tell"), true),
            ("output", "not_contains", json!("wrong"), true),
            ("session_id", "equals", json!("s"), false),
            ("session_id", "not_equals", json!("s"), true),
            ("session_id", "exists", Value::Null, false),
            ("session_id", "not_exists", Value::Null, true),
            ("total_tokens", "equals", json!(150), true),
            ("prompt_tokens", "gt", json!(120), false),
            ("prompt_tokens", "gte", json!(120), true),
            ("completion_tokens", "lt", json!(31), true),
            ("total_cost", "lte", json!(1.99), false),
        ] {
            assert_eq!(passes(one(field, operator, value.clone())), expected, "{field} {operator} {value}");
        }
    }

    #[test]
    fn groups_are_alternatives() {
        let is = |model: &str| json!({"field": "model", "operator": "equals", "value": model});
        let (yes, no) = (is("vendor/model"), is("other"));
        for (groups, expected) in [
            (json!([{"rules": [yes, no]}]), false),
            (json!([{"logic": "or", "rules": [yes, no]}]), true),
            (json!([{"rules": [no]}, {"rules": [yes]}]), true),
            (json!([]), true),
        ] {
            assert_eq!(passes(json!({"groups": groups})), expected, "{groups}");
        }
        assert!(passes(json!({"enabled": false, "groups": [{"rules": [no]}]})));
    }

    #[test]
    fn what_cannot_be_a_rule_is_refused_by_its_place() {
        let rule = |rule: Value| json!({"groups": [{"rules": [rule]}]});
        for (rules, path) in [
            (json!([]), ""),
            (json!({"groups": {}}), "groups"),
            (json!({"groups": [{"logic": "xor", "rules": []}]}), "groups[0].logic"),
            (json!({"groups": [{"rules": []}]}), "groups[0].rules"),
            (rule(json!({"field": "price", "operator": "gt", "value": 1})), "groups[0].rules[0].field"),
            (rule(json!({"field": "model", "operator": "gt", "value": 1})), "groups[0].rules[0].operator"),
            (rule(json!({"field": "total_cost", "operator": "contains", "value": "1"})), "groups[0].rules[0].operator"),
            (rule(json!({"field": "total_cost", "operator": "gt", "value": "1"})), "groups[0].rules[0].value"),
            (rule(json!({"field": "model", "operator": "regex", "value": "(?=a)"})), "groups[0].rules[0].value"),
        ] {
            assert_eq!(Filter::read(&rules).unwrap_err().path, path, "{rules}");
        }
    }

    #[test]
    fn a_session_is_drawn_as_a_whole_and_else_a_trace_and_else_a_request() {
        let mut exchange = exchange();
        let alone = exchange.id.as_str().to_owned();
        let header = Said { parent: Some(("0af7".to_owned(), "b7ad".to_owned())), ..Said::default() };
        let trace = json!({"trace_id": "job"}).as_object().unwrap().clone();
        let both = Said { trace, ..header.clone() };
        assert_eq!(unit(&exchange, &Said::default()), alone);
        assert_eq!((unit(&exchange, &header), unit(&exchange, &both)), ("0af7", "job"));
        exchange.session = Some("s".into());
        assert_eq!(unit(&exchange, &both), "s");
    }

    #[test]
    fn a_share_is_kept_and_sessions_stay_together() {
        let drawn = (0..10_000).filter(|number| is_drawn(0.5, "d", &format!("session-{number}"))).count();
        assert!((4_800..=5_200).contains(&drawn), "{drawn}");
        for number in 0..100 {
            let session = format!("session-{number}");
            assert_eq!(is_drawn(0.5, "d", &session), is_drawn(0.5, "d", &session));
            assert!(
                !is_drawn(0.3, "d", &session) || is_drawn(0.6, "d", &session),
                "a larger share holds a smaller one"
            );
        }
        let differ =
            (0..100).any(|number| is_drawn(0.5, "a", &number.to_string()) != is_drawn(0.5, "b", &number.to_string()));
        assert!(differ, "destinations pick for themselves");
    }
}
