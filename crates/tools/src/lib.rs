//! What the server can do for a model: web search, page fetch, PDF text, an MCP client.
//!
//! The room is kept for the server tools; it may know `core` and `wire`, never the gateway that calls it.
