//! Where the settings of a file stand, so that a mistake is named with its line, and amounts of money as they are
//! written there: a number of TOML is read as a binary fraction, which no amount goes through.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Lines by the path of a setting: `models[0].endpoints[0].pricing.input`.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    file: String,
    lines: BTreeMap<String, usize>,
    /// What was said by a variable rather than in the file, and its name.
    elsewhere: BTreeMap<String, String>,
}

/// Sections in which numbers are amounts, and what is a count there.
pub const AMOUNTS: [&str; 3] = ["pricing", "billing", "shadow_price"];
const COUNTS: [&str; 1] = ["min_prompt_tokens"];

/// Reads a file into its settings and their lines.
pub fn read(file: &Path, text: &str) -> anyhow::Result<(toml::Table, Lines)> {
    let name = file.display().to_string();
    let starts: Vec<usize> = text.match_indices('\n').map(|(place, _)| place + 1).collect();
    let line = |place: usize| starts.partition_point(|start| *start <= place) + 1;
    // The parser's own text would quote the line, and the line may hold a secret.
    let broken = |error: &toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start).min(text.len());
        anyhow::anyhow!("{name}, line {}: {}", line(start), error.message().replace('\n', "; "))
    };
    let mut table = DeTable::parse(text).map_err(|error| broken(&error))?;
    let mut lines = BTreeMap::new();
    walk(table.get_mut(), "", false, &mut |path, place| {
        lines.insert(path, line(place));
    });
    let table = toml::Table::deserialize(toml::Deserializer::from(table)).map_err(|error| broken(&error))?;
    Ok((table, Lines { file: name, lines, elsewhere: BTreeMap::new() }))
}

impl Lines {
    /// The file and the line of a setting, or of what it would stand in, or the variable that it comes from. None where it
    /// comes from neither.
    pub fn place(&self, path: &str) -> Option<String> {
        let mut path = path;
        loop {
            if let Some(variable) = self.elsewhere.get(path) {
                return Some(format!("environment variable {variable}"));
            }
            if let Some(line) = self.lines.get(path) {
                return Some(format!("{}, line {line}", self.file));
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }

    /// A setting comes from a variable, whatever stands in the file.
    pub fn overridden(&mut self, path: String, variable: &str) {
        self.elsewhere.insert(path, variable.to_owned());
    }

    /// A mistake with its place before it: in one text, because not everybody shows what is below the first.
    pub fn named(&self, path: &str, mistake: anyhow::Error) -> anyhow::Error {
        match self.place(path) {
            Some(place) => anyhow::anyhow!("{place}: {mistake:#}"),
            None => mistake,
        }
    }
}

fn walk(table: &mut DeTable<'_>, above: &str, is_amount: bool, note: &mut impl FnMut(String, usize)) {
    for (key, value) in table.iter_mut() {
        let name = key.get_ref().as_ref();
        let path = if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") };
        note(path.clone(), key.span().start);
        let is_amount = (is_amount || AMOUNTS.contains(&name)) && !COUNTS.contains(&name);
        walk_value(value, &path, is_amount, note);
    }
}

fn walk_value(value: &mut Spanned<DeValue<'_>>, path: &str, is_amount: bool, note: &mut impl FnMut(String, usize)) {
    let text = match value.get_mut() {
        DeValue::Table(table) => return walk(table, path, is_amount, note),
        DeValue::Array(list) => {
            for (index, element) in list.iter_mut().enumerate() {
                let path = format!("{path}[{index}]");
                note(path.clone(), element.span().start);
                walk_value(element, &path, is_amount, note);
            }
            return;
        }
        DeValue::Integer(number) if is_amount && number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Float(number) if is_amount => number.as_str().to_owned(),
        _ => return,
    };
    let text = text.replace('_', "");
    *value.get_mut() = DeValue::String(text.trim_start_matches('+').to_owned().into());
}
