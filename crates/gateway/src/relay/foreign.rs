//! What only Anthropic itself can serve of its format: files that are kept there, and code that runs there. Who has none of
//! it is left out of the plan; here is what is said where nobody has it.

use serde_json::value::RawValue;
use tidegate_routing::Parameter;
use tidegate_wire::envelope::{CODE, Envelope};
use tidegate_wire::error::ErrorType;
use tidegate_wire::json::{self, Members};

use crate::Snapshot;
use crate::failure::{self, Failure};

/// Refuses a request that nobody can serve for what it points at, by the name of that.
pub(crate) fn check(envelope: &Envelope<'_>, snapshot: &Snapshot, body: &[u8]) -> Result<(), Failure> {
    let (asked, traits) = (envelope.asked, envelope.traits);
    if !(asked.vendor_code || traits.foreign_file) || !is_served_by_nobody(envelope, snapshot) {
        return Ok(());
    }
    let members = serde_json::from_slice::<&RawValue>(body).ok().and_then(Members::of).unwrap_or_default();
    let file = || ["messages", "system"].into_iter().find_map(|name| file_in(members.get(name)?));
    if let Some(id) = traits.foreign_file.then(file).flatten() {
        return Err(Failure::new(404, ErrorType::NotFound, failure::file_not_found(&id)));
    }
    let tools = members.get("tools").and_then(json::elements).unwrap_or_default();
    let kinds = tools.into_iter().map(|tool| Members::of(tool)?.get("type").and_then(json::string));
    match kinds.enumerate().find_map(|(place, kind)| Some((place, kind.filter(|kind| kind.starts_with(CODE))?))) {
        None => Ok(()),
        Some((place, kind)) => {
            let model = envelope.names().next().unwrap_or_default();
            let text = format!("tools[{place}].type '{kind}' is not supported by any endpoint of {model}");
            Err(Failure::invalid(format!("Invalid request: {text}")))
        }
    }
}

/// Whether no endpoint of the models has containers. Of models that are chosen later nobody knows yet.
fn is_served_by_nobody(envelope: &Envelope<'_>, snapshot: &Snapshot) -> bool {
    let has_containers = |name| {
        let named = snapshot.catalogue.find(name);
        named.map_or(true, |named| {
            named.model.endpoints.iter().any(|endpoint| endpoint.parameters.contains(Parameter::Container))
        })
    };
    !envelope.names().any(has_containers)
}

/// The id of the first file that is named anywhere in a value.
fn file_in(value: &RawValue) -> Option<String> {
    if let Some(elements) = json::elements(value) {
        return elements.into_iter().find_map(file_in);
    }
    let members = Members::of(value)?;
    let is_file = members.get("type").and_then(json::string).is_some_and(|kind| kind == "file");
    let id = members.get("file_id").filter(|_| is_file).and_then(json::string);
    // What a tool is called with is the caller's own.
    let inner = || members.0.iter().filter(|(name, _)| name != "input").find_map(|(_, inner)| file_in(inner));
    id.map(|id| id.into_owned()).or_else(inner)
}
