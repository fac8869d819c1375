//! The tools of a request: the few members of each that we look at.

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess};
use serde_json::value::RawValue;

use super::{State, shown};
use crate::envelope::{Violation, check};
use crate::json::{self, Kind, Node, Seen, Text, Walk};

pub(super) struct Tools<'s, 'a, 'b>(pub &'s mut State<'a, 'b>);

impl<'a> Node<'a> for Tools<'_, 'a, '_> {
    fn array<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut tools = check::Tools::default();
        let mut index = 0;
        while let Some(tool) = seq.next_element_seed(ToolSeed)? {
            let result = tools.add(index, tool, self.0.brand);
            self.0.check(result);
            index += 1;
        }
        self.0.check(tools.count_fits());
        self.0.envelope.asked.tools = index > 0;
        self.0.envelope.asked.vendor_web = tools.has_vendor_web;
        self.0.envelope.asked.vendor_fetch = tools.has_vendor_fetch;
        self.0.envelope.asked.vendor_code = tools.has_vendor_code;
        self.0.envelope.asked.deferred_tools = tools.has_deferred;
        self.0.envelope.server_tools = tools.branded.clone();
        self.0.tools = Some(tools);
        Ok(())
    }

    fn other(self, kind: Kind) {
        if kind != Kind::Null {
            self.0.note(Violation::new("tools must be an array"));
        }
    }
}

/// Reads the few members of a tool that we look at; schemas are skipped.
struct ToolSeed;

impl<'a> de::DeserializeSeed<'a> for ToolSeed {
    type Value = check::Tool<'a>;
    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let mut tool = check::Tool::default();
        Walk(ToolNode(&mut tool)).deserialize(deserializer)?;
        Ok(tool)
    }
}

struct ToolNode<'s, 'a>(&'s mut check::Tool<'a>);

impl<'a> Node<'a> for ToolNode<'_, 'a> {
    fn object<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let tool = self.0;
        tool.is_object = true;
        let mut seen = Seen::default();
        while let Some(Text(name)) = map.next_key()? {
            if !seen.add(&name) {
                tool.repeated.get_or_insert_with(|| shown(&name).into_owned());
            }
            match name.as_ref() {
                "type" => tool.kind = Some(map.next_value()?),
                "name" => tool.name = Some(map.next_value()?),
                "input_schema" => {
                    // Only its kind matters: do not keep a slice of what may be the longest part of the body.
                    let schema: &RawValue = map.next_value()?;
                    tool.schema = Some(json::kind(schema));
                }
                "cache_control" => tool.cache_control = Some(map.next_value()?),
                "defer_loading" => {
                    let value: &RawValue = map.next_value()?;
                    tool.is_deferred = value.get() == "true";
                    tool.look(&name, json::kind(value));
                }
                "description" | "strict" | "eager_input_streaming" => {
                    let value: &RawValue = map.next_value()?;
                    tool.look(&name, json::kind(value));
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn other(self, _: Kind) {}
}
