//! Reading what a request says about a tool, with the path of whatever is wrong.

use serde_json::{Map, Value};

use crate::failure::Failure;

/// Reads the members of a tool, each with its path when it is wrong.
pub(super) struct Reader<'a> {
    pub members: &'a Map<String, Value>,
    /// Of the members.
    pub path: String,
}

impl<'a> Reader<'a> {
    /// Of the parameters of the tool that stands there.
    pub fn of(members: &'a Map<String, Value>, place: usize) -> Self {
        Self { members, path: format!("tools[{place}].parameters") }
    }

    /// Of a server that stands at a place of `mcp_servers`, and became a tool's parameters.
    pub fn of_server(members: &'a Map<String, Value>, place: u64) -> Self {
        Self { members, path: format!("mcp_servers[{place}]") }
    }

    /// Where a member stands in the request, by the name that it has there.
    pub fn path_of(&self, name: &str) -> String {
        let name = match name {
            name if !self.path.starts_with("mcp_servers[") => name,
            "server_url" => "url",
            "server_label" => "name",
            "authorization" => "authorization_token",
            "allowed_tools" => "tool_configuration.allowed_tools",
            name => name,
        };
        format!("{}.{name}", self.path)
    }

    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    pub fn wrong(&self, name: &str, problem: &str) -> Failure {
        Failure::invalid(format!("Invalid request: {} {problem}", self.path_of(name)))
    }

    pub fn text(&self, name: &str) -> Result<Option<&'a str>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(name, "must be a string"))
    }

    pub fn number(&self, name: &str, most: u64) -> Result<Option<u64>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_i64() {
            None if !value.is_u64() => Err(self.wrong(name, "must be an integer")),
            Some(number) if number < 1 => Err(self.wrong(name, "must be at least 1")),
            number => match number.map_or(u64::MAX, i64::unsigned_abs) {
                number if number > most => Err(self.wrong(name, &format!("must be at most {most}"))),
                number => Ok(Some(number)),
            },
        }
    }

    pub fn flag(&self, name: &str) -> Result<Option<bool>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(name, "must be a boolean"))
    }

    pub fn object(&self, name: &str) -> Result<Option<Self>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(Self { members, path: format!("{}.{name}", self.path) })),
            Some(_) => Err(self.wrong(name, "must be an object")),
        }
    }
}
