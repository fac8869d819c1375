//! Tools that a conversation withdraws and gives back on its way. Only Messages upstreams know such a thing, and not
//! all of them; for others the list of tools is the one that holds at the end.

use std::borrow::Cow;
use std::collections::HashSet;

use tidegate_wire::messages::{AutoChoice, Block, Content, Message, Request, Role, Tool, ToolChoice, ToolTarget};

use super::functions::name_of;

/// A request without the tools that were withdrawn.
pub struct Offer<'a> {
    pub request: Cow<'a, Request>,
    /// What had to change beside the list.
    pub warning: Option<&'static str>,
}

impl<'a> Offer<'a> {
    pub fn of(request: &'a Request) -> Self {
        let Changes { withdrawn, .. } = Changes::of(&request.messages);
        let is_withdrawn = |tool: &Tool| name_of(tool).is_some_and(|name| withdrawn.contains(name.as_ref()));
        let tools = request.tools.iter().flatten();
        if withdrawn.is_empty() || !tools.clone().any(is_withdrawn) {
            return Self { request: Cow::Borrowed(request), warning: None };
        }
        let tools: Vec<Tool> = tools.filter(|tool| !is_withdrawn(tool)).cloned().collect();
        // Nobody can be made to call what is not there.
        let is_forced = match &request.tool_choice {
            Some(ToolChoice::Tool(choice)) => withdrawn.contains(choice.name.as_str()),
            Some(ToolChoice::Any(_)) => tools.is_empty(),
            Some(ToolChoice::Auto(_) | ToolChoice::None(_) | ToolChoice::Other(_)) | None => false,
        };
        let tool_choice = match &request.tool_choice {
            Some(choice) if is_forced => {
                let disable_parallel_tool_use = choice.is_serial().then_some(true);
                Some(ToolChoice::Auto(AutoChoice { disable_parallel_tool_use, ..AutoChoice::default() }))
            }
            choice => choice.clone(),
        };
        let request = Request { tools: Some(tools), tool_choice, ..request.clone() };
        Self { request: Cow::Owned(request), warning: is_forced.then_some("changed:tool_choice") }
    }
}

/// Names of the tools that are withdrawn, and of those that were added, at the end of a conversation. Tools of MCP servers never
/// come here.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes<'a> {
    pub withdrawn: HashSet<&'a str>,
    pub added: HashSet<&'a str>,
}

impl<'a> Changes<'a> {
    pub fn of(messages: &'a [Message]) -> Self {
        let mut made = Self::default();
        let contents = messages.iter().filter(|message| message.role == Role::System).map(|message| &message.content);
        for content in contents {
            let Content::Blocks(blocks) = content else { continue };
            for block in blocks {
                match block {
                    Block::ToolRemoval(removal) => {
                        let name = named(&removal.tool);
                        name.map(|name| made.added.remove(name));
                        made.withdrawn.extend(name);
                    }
                    Block::ToolAddition(addition) => {
                        let name = named(&addition.tool);
                        name.map(|name| made.withdrawn.remove(name));
                        made.added.extend(name);
                    }
                    _ => {}
                }
            }
        }
        made
    }
}

fn named(target: &ToolTarget) -> Option<&str> {
    match target {
        ToolTarget::Tool(tool) => Some(&tool.name),
        ToolTarget::McpTool(_) | ToolTarget::McpToolset(_) | ToolTarget::Other(_) => None,
    }
}
