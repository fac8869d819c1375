//! Finding a tool among many: those that are not shown to a model from the start, by a pattern or by words.
//!
//! Both look at the same texts: a tool's name, what it says of itself, and the names and descriptions of its arguments.

use std::collections::HashMap;

use regex::RegexBuilder;
use serde_json::Value;

/// Characters of a pattern and of a query at most.
pub const LONGEST_PATTERN: usize = 200;
pub const LONGEST_QUERY: usize = 500;
/// Bytes that a pattern may become: a short one can stand for a very large machine.
const LARGEST_PATTERN: usize = 1 << 20;
/// How much repeated words count, and how much the length of a text does, as the formula is commonly used.
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// Arguments of a tool that are looked at, and how deep.
const ARGUMENTS: usize = 1_000;
const DEPTH: usize = 16;

/// A tool as it is searched.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    texts: Vec<String>,
}

/// Why nothing could be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    TooLong,
    /// Not a pattern, or one that would grow too large.
    Pattern,
    Empty,
}

impl Entry {
    /// Of a tool's definition; nothing when it has no name.
    pub fn of(tool: &Value) -> Option<Self> {
        let name = tool.get("name")?.as_str()?.to_owned();
        let mut texts = vec![name.clone()];
        texts.extend(tool.get("description").and_then(Value::as_str).map(str::to_owned));
        if let Some(schema) = tool.get("input_schema") {
            arguments(schema, DEPTH, &mut texts);
        }
        Some(Self { name, texts })
    }
}

/// The names and descriptions of all arguments, those inside of others, too.
fn arguments(schema: &Value, depth: usize, texts: &mut Vec<String>) {
    if depth == 0 || texts.len() >= ARGUMENTS {
        return;
    }
    for (name, argument) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        texts.push(name.clone());
        texts.extend(argument.get("description").and_then(Value::as_str).map(str::to_owned));
        arguments(argument, depth - 1, texts);
    }
    if let Some(items) = schema.get("items") {
        arguments(items, depth - 1, texts);
    }
}

/// The names of the tools that a pattern fits, in their order, whatever the case of the letters.
pub fn by_pattern<'e>(entries: &'e [Entry], pattern: &str, most: usize) -> Result<Vec<&'e str>, Unusable> {
    if pattern.chars().count() > LONGEST_PATTERN {
        return Err(Unusable::TooLong);
    }
    if pattern.is_empty() {
        return Err(Unusable::Empty);
    }
    // The engine takes time that grows with the text and not faster, whatever the pattern.
    let mut builder = RegexBuilder::new(pattern);
    builder.case_insensitive(true).size_limit(LARGEST_PATTERN).dfa_size_limit(LARGEST_PATTERN);
    let regex = builder.build().map_err(|_| Unusable::Pattern)?;
    let fits = entries.iter().filter(|entry| entry.texts.iter().any(|text| regex.is_match(text)));
    Ok(fits.take(most).map(|entry| entry.name.as_str()).collect())
}

/// The names of the tools that fit words best, the best first: BM25 over all texts of a tool.
pub fn by_words<'e>(entries: &'e [Entry], query: &str, most: usize) -> Result<Vec<&'e str>, Unusable> {
    if query.chars().count() > LONGEST_QUERY {
        return Err(Unusable::TooLong);
    }
    let mut wanted: Vec<String> = words(query).collect();
    wanted.sort();
    wanted.dedup();
    if wanted.is_empty() {
        return Err(Unusable::Empty);
    }
    let counted: Vec<HashMap<String, u32>> = entries.iter().map(counts).collect();
    let lengths: Vec<f64> = counted.iter().map(|counts| counts.values().map(|count| f64::from(*count)).sum()).collect();
    let average = lengths.iter().sum::<f64>() / (entries.len().max(1) as f64);
    let rarity = |word: &String| {
        let holding = counted.iter().filter(|counts| counts.contains_key(word)).count() as f64;
        ((entries.len() as f64 - holding + 0.5) / (holding + 0.5) + 1.0).ln()
    };
    let rarities: Vec<f64> = wanted.iter().map(rarity).collect();
    let mut scored: Vec<(f64, &str)> = Vec::new();
    for ((entry, counts), length) in entries.iter().zip(&counted).zip(&lengths) {
        let score: f64 = wanted
            .iter()
            .zip(&rarities)
            .map(|(word, rarity)| {
                let count = counts.get(word).copied().map_or(0.0, f64::from);
                rarity * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / average))
            })
            .sum();
        if score > 0.0 {
            scored.push((score, entry.name.as_str()));
        }
    }
    // Stable, so that those that fit equally well keep their order.
    scored.sort_by(|one, other| other.0.total_cmp(&one.0));
    Ok(scored.into_iter().take(most).map(|(_, name)| name).collect())
}

fn counts(entry: &Entry) -> HashMap<String, u32> {
    let mut counts = HashMap::new();
    for word in entry.texts.iter().flat_map(|text| words(text)) {
        *counts.entry(word).or_insert(0) += 1;
    }
    counts
}

/// Words in lower case; `get_tide` and `getTide` are two each.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::with_capacity(text.len() + 8);
    let mut was_lower = false;
    for c in text.chars() {
        if c.is_uppercase() && was_lower {
            spaced.push(' ');
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
        spaced.extend(c.to_lowercase());
    }
    let words = spaced.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned);
    words.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn entries() -> Vec<Entry> {
        let tools = [
            json!({"name": "get_tide", "description": "Tide at a port", "input_schema": {"type": "object",
                "properties": {"port": {"type": "string", "description": "Name of the harbour"}}}}),
            json!({"name": "bookBerth", "description": "Books a berth", "input_schema": {"type": "object",
                "properties": {"ships": {"type": "array", "items": {"properties": {"draught": {"type": "number"}}}}}}}),
            json!({"name": "weather", "input_schema": {}}),
        ];
        tools.iter().map(|tool| Entry::of(tool).unwrap()).collect()
    }

    #[test]
    fn a_pattern_looks_at_names_descriptions_and_arguments() {
        let entries = entries();
        let table: [(&str, &[&str]); 9] = [
            ("tide", &["get_tide"]),
            ("TIDE|weather", &["get_tide", "weather"]),
            ("^Tide at", &["get_tide"]),
            ("harbour", &["get_tide"]),
            ("draught", &["bookBerth"]),
            ("^berth$", &[]),
            (".", &["get_tide", "bookBerth", "weather"]),
            ("(a+)+$", &[]),
            ("nothing", &[]),
        ];
        for (pattern, names) in table {
            assert_eq!(by_pattern(&entries, pattern, 50).as_deref(), Ok(names), "{pattern}");
        }
        assert_eq!(by_pattern(&entries, ".", 2).unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_pattern_is_said_to_be_none() {
        let entries = entries();
        for pattern in ["(", "[a", "(?<=a)b", r"(a)\1", r"\w{1000}{1000}"] {
            assert_eq!(by_pattern(&entries, pattern, 5), Err(Unusable::Pattern), "{pattern}");
        }
        assert_eq!(by_pattern(&entries, "", 5), Err(Unusable::Empty));
        assert_eq!(by_pattern(&entries, &"ä".repeat(200), 5), Ok(vec![]));
        assert_eq!(by_pattern(&entries, &"a".repeat(201), 5), Err(Unusable::TooLong));
    }

    #[test]
    fn words_find_what_fits_best_first() {
        let entries = entries();
        let table: [(&str, &[&str]); 6] = [
            ("tide", &["get_tide"]),
            ("Book a berth", &["bookBerth", "get_tide"]),
            ("harbour, weather!", &["weather", "get_tide"]),
            ("draught", &["bookBerth"]),
            ("tid", &[]),
            ("nothing", &[]),
        ];
        for (query, names) in table {
            assert_eq!(by_words(&entries, query, 50).as_deref(), Ok(names), "{query}");
        }
        assert_eq!(by_words(&entries, "book a berth", 1).as_deref(), Ok(&["bookBerth"][..]));
        assert_eq!(by_words(&entries, " ,;", 5), Err(Unusable::Empty));
        assert_eq!(by_words(&entries, &"a".repeat(501), 5), Err(Unusable::TooLong));
        assert_eq!(by_words(&[], "tide", 5), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn no_pattern_and_no_words_panic(text in "\\PC{0,60}", schema in "\\PC{0,20}") {
            let tool = json!({"name": text, "description": schema, "input_schema": {"properties": {schema: 7}}});
            let entries = [Entry::of(&tool).unwrap()];
            let _ = by_pattern(&entries, &text, 5);
            let _ = by_words(&entries, &text, 5);
        }
    }
}
