//! The tools of a request in the other format's words. It has no groups of tools: the name of each begins with that of its group
//! there, and an answer has both apart again.

use std::borrow::Cow;

use serde_json::value::{RawValue, to_raw_value};

use super::{Form, Grouped};
use crate::chat::custom;
use crate::chat::options::{self, Allowed};
use crate::chat::request::Object;
use crate::envelope::check::{self, Place};
use crate::envelope::{MAX_TOOLS, Violation};
use crate::json::{self, Members};

/// What the client's own search for tools is called among the others.
pub(super) const FINDS: &str = "tool_search";
/// The search that we run.
const OWN_SEARCH: &str = "tool_search_tool_bm25";

/// What a tool of a group is called where there are no groups.
pub(super) fn flat(group: &str, name: &str) -> String {
    if group.ends_with('_') { format!("{group}{name}") } else { format!("{group}__{name}") }
}

/// A tool as it goes out.
pub(super) struct Made {
    group: Option<String>,
    /// Of a function, as it is called without its group.
    name: Option<String>,
    pub json: String,
}

/// Tools that are being put together.
pub(super) struct Tools<'a> {
    /// The type of the tool that searches the web, where there is one.
    pub search: Option<&'a str>,
    pub allowed: Option<&'a Allowed<'a>>,
    /// Tools are looked for by a tool, as the request says.
    pub are_found: bool,
    pub form: &'a mut Form,
    pub made: Vec<Made>,
    /// These came with the conversation: tools that were offered before, and those that were found.
    pub is_added: bool,
    /// A search of the web was left out.
    pub is_dropped: bool,
}

impl Tools<'_> {
    pub fn read(&mut self, place: &Place<'_>, value: &RawValue) -> Result<(), Violation> {
        let entries = check::entries(place, value, 0, MAX_TOOLS)?;
        // Before the others, which may come after it.
        self.are_found |= entries.iter().any(|entry| is_own_search(entry));
        for (index, entry) in entries.into_iter().enumerate() {
            let place = place.entry(index);
            self.tool(&place, &check::members(&place, entry)?, entry)?;
        }
        Ok(())
    }

    fn tool(&mut self, place: &Place<'_>, members: &Members<'_>, entry: &RawValue) -> Result<(), Violation> {
        let kind = check::text(&place.member("type"), check::required(place, members, "type")?)?;
        if kind == "namespace" {
            return self.group(place, members);
        }
        if self.allowed.is_some_and(|allowed| !allowed.has(&kind, members)) {
            return Ok(());
        }
        let mut name = None;
        let json = match kind.as_ref() {
            "function" | "custom" => {
                name = check::present(members, "name").and_then(json::string).map(Cow::into_owned);
                self.function(place, &kind, members)?
            }
            FINDS if is_clients(members) => {
                self.form.finds = true;
                let called = raw(FINDS);
                options::function(place, &with(members, &[("name", &called)]))?.finish()
            }
            FINDS => format!(r#"{{"type":"{OWN_SEARCH}","name":"{OWN_SEARCH}"}}"#),
            kind if kind.starts_with("web_search") => match self.search {
                Some(kind) => options::searching(kind, members),
                None => {
                    self.is_dropped = true;
                    return Ok(());
                }
            },
            // Its own interface would be named as the only one that has them.
            kind if check::ELSEWHERE.contains(&kind) => {
                return Err(place.member("type").is(format_args!("'{kind}' is not supported")));
            }
            _ => entry.get().to_owned(),
        };
        self.put(Made { group: None, name, json });
        Ok(())
    }

    /// What is found is told with every request from then on, and may be among the others besides: the later word counts.
    fn put(&mut self, made: Made) {
        let is_same =
            |known: &&mut Made| known.name.is_some() && (&known.group, &known.name) == (&made.group, &made.name);
        let is_told_again = self.is_added || made.group.is_some();
        match self.made.iter_mut().find(is_same).filter(|_| is_told_again) {
            Some(known) => *known = made,
            None => self.made.push(made),
        }
    }

    /// One that takes a text is a function with one member.
    fn function(&mut self, place: &Place<'_>, kind: &str, members: &Members<'_>) -> Result<String, Violation> {
        let mut function: Object = match kind {
            "custom" => custom::tool(place, members, &mut self.form.custom)?,
            _ => options::function(place, members)?,
        };
        if self.are_found && !self.is_added {
            function.set_some("defer_loading", check::present(members, "defer_loading"));
        }
        Ok(function.finish())
    }

    /// What is said of the group is said with the first of its tools.
    fn group(&mut self, place: &Place<'_>, members: &Members<'_>) -> Result<(), Violation> {
        let group = check::required(place, members, "name")?;
        let group = check::text_between(&place.member("name"), group, 1, 128)?;
        let about = check::present(members, "description");
        let about = about.map(|about| check::text(&place.member("description"), about)).transpose()?;
        let mut about = about.filter(|about| !about.trim().is_empty());
        let place = place.member("tools");
        let tools = check::required(&place, members, "tools")?;
        for (index, entry) in check::entries(&place, tools, 0, MAX_TOOLS)?.into_iter().enumerate() {
            let place = place.entry(index);
            let tool = check::members(&place, entry)?;
            let kind = check::required(&place, &tool, "type")?;
            let kind = check::one_of(&place.member("type"), kind, &["function", "custom"])?;
            let name = check::required(&place, &tool, "name")?;
            let name = check::text_between(&place.member("name"), name, 1, 128)?;
            let called = flat(&group, &name);
            if self.allowed.is_some_and(|allowed| !allowed.has(&kind, &tool) && !allowed.has_of_group(&group, &called))
            {
                continue;
            }
            let (name_there, mut about_there) = (raw(&called), None);
            if let Some(about) = about.take() {
                let own = check::present(&tool, "description").and_then(json::string).unwrap_or_default();
                about_there = Some(raw(format!("{own}\n\n{group}: {about}").trim_start()));
            }
            let mut there = vec![("name", &*name_there)];
            there.extend(about_there.as_deref().map(|about| ("description", about)));
            let tool = with(&tool, &there);
            let (group, name) = (group.clone().into_owned(), name.into_owned());
            let told = (Some(group.clone()), Some(name.clone()));
            self.form.grouped.push(Grouped { called, group, name });
            let json = self.function(&place, &kind, &tool)?;
            self.put(Made { group: told.0, name: told.1, json });
        }
        Ok(())
    }
}

fn raw(text: &str) -> Box<RawValue> {
    to_raw_value(text).unwrap_or_default()
}

/// A tool of which these members are others.
fn with<'a>(tool: &'a Members<'_>, said: &[(&'a str, &'a RawValue)]) -> Members<'a> {
    let is_kept = |member: &str| !said.iter().any(|(name, _)| *name == member);
    let kept = tool.0.iter().filter(|(name, _)| is_kept(name)).map(|(name, value)| (Cow::Borrowed(&**name), *value));
    Members(kept.chain(said.iter().map(|(name, value)| (Cow::Borrowed(*name), *value))).collect())
}

/// A choice of a tool that stands in a group, by the name that it has where there are no groups. A tool without a group that is
/// called like it is another one.
pub(super) fn chosen(choice: &RawValue, form: &Form, made: &[Made]) -> Option<Box<RawValue>> {
    let members = Members::of(choice).filter(|_| json::kind(choice) == json::Kind::Object)?;
    let word = |name: &str| check::present(&members, name).and_then(json::string);
    if form.finds && word("type").as_deref() == Some(FINDS) {
        return RawValue::from_string(format!(r#"{{"type":"function","name":"{FINDS}"}}"#)).ok();
    }
    let (name, group) = (word("name")?, word("namespace"));
    let is_plain = |tool: &Made| tool.group.is_none() && tool.name.as_deref() == Some(&*name);
    if group.is_none() && made.iter().any(is_plain) {
        return None;
    }
    let is_it = |tool: &&Grouped| tool.name == name && group.as_ref().is_none_or(|group| tool.group == *group);
    let called = raw(&form.grouped.iter().find(is_it)?.called);
    let mut out = Object::default();
    for (name, value) in with(&members, &[("name", &called)]).0.iter().filter(|(name, _)| name != "namespace") {
        out.set(name, value.get());
    }
    RawValue::from_string(out.finish()).ok()
}

/// Whether the client itself looks for tools.
fn is_clients(tool: &Members<'_>) -> bool {
    check::present(tool, "execution").and_then(json::string).as_deref() == Some("client")
}

fn is_own_search(entry: &RawValue) -> bool {
    let tool = Members::of(entry).unwrap_or_default();
    check::present(&tool, "type").and_then(json::string).as_deref() == Some(FINDS) && !is_clients(&tool)
}

/// What tools are called here, group by group.
pub(super) fn names(tools: &RawValue) -> Vec<String> {
    let text =
        |tool: &Members<'_>| check::present(tool, "name").and_then(json::string).unwrap_or_default().into_owned();
    let mut names = Vec::new();
    for tool in json::elements(tools).unwrap_or_default().into_iter().filter_map(Members::of) {
        let name = text(&tool);
        match check::present(&tool, "tools").and_then(json::elements) {
            Some(inner) => {
                names.extend(inner.into_iter().filter_map(Members::of).map(|tool| flat(&name, &text(&tool))))
            }
            None => names.push(name),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
