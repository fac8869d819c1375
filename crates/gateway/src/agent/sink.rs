//! Where the blocks of a loop go: into one answer, or into one stream, with the same blocks in the same order.

use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value, json};
use tidegate_core::Timestamp;
use tidegate_wire::sse;
use tokio::sync::mpsc;

use super::replay::client_id;
use super::roster::Roster;
use super::turn::is;
use crate::cache::Recording;

/// What the client gets, block by block.
pub(super) struct Sink {
    /// The blocks so far, as the client sees them.
    pub content: Vec<Value>,
    /// Nothing when the answer is sent whole.
    frames: Option<mpsc::Sender<Bytes>>,
    /// Where each block of the turn under way stands in the answer; nothing of one that is not shown.
    places: Vec<Option<usize>>,
    /// Ids of calls of server tools in this turn: as the model calls them, and as the client does.
    ids: Vec<(String, String)>,
    /// Of a stream that is to be kept.
    recording: Mutex<Option<Box<Recording>>>,
}

/// The client has gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gone;

impl Sink {
    pub fn new(frames: Option<mpsc::Sender<Bytes>>) -> Self {
        Self { content: Vec::new(), frames, places: Vec::new(), ids: Vec::new(), recording: Mutex::default() }
    }

    #[must_use]
    pub fn recorded(self, recording: Option<Box<Recording>>) -> Self {
        Self { recording: Mutex::new(recording), ..self }
    }

    /// The stream is whole, and kept where it was to be.
    pub fn keep(&self, now: Timestamp) {
        if let Some(recording) = self.recording.lock().unwrap_or_else(PoisonError::into_inner).take() {
            recording.keep(now);
        }
    }

    /// Takes an event of the stream that is kept, which need not be quite the one that leaves.
    fn record(&self, frame: &[u8]) {
        if let Some(recording) = &mut *self.recording.lock().unwrap_or_else(PoisonError::into_inner) {
            recording.take(frame);
        }
    }

    /// A turn begins.
    pub fn turn(&mut self) {
        self.places.clear();
        self.ids.clear();
    }

    /// The id that the client knows a call of this turn by.
    pub fn client_id(&self, upstream: &str) -> Option<&str> {
        self.ids.iter().find(|(known, _)| known == upstream).map(|(_, client)| client.as_str())
    }

    /// Shows the blocks of a turn that came whole.
    pub fn whole(&mut self, blocks: &[Value], roster: &Roster, is_last: bool) {
        for block in blocks {
            if let Some(mut shown) = self.shown(block, roster, is_last) {
                if let Some(citations) = citations(&shown, roster) {
                    shown["citations"] = Value::Array(citations);
                }
                self.content.push(shown);
            }
        }
    }

    /// A block as the client sees it: calls of server tools under another name and id, and not at all in a turn in which
    /// nothing may be called.
    fn shown(&mut self, block: &Value, roster: &Roster, is_last: bool) -> Option<Value> {
        if !is(block, "tool_use") {
            return Some(block.clone());
        }
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        let Some(tool) = roster.called(text("name")) else { return (!is_last).then(|| block.clone()) };
        if is_last {
            return None;
        }
        let id = client_id(text("id"));
        self.ids.push((text("id").to_owned(), id.clone()));
        let input = block.get("input").cloned().unwrap_or_else(|| Value::Object(Map::new()));
        Some(json!({
            "type": "server_tool_use",
            "id": id,
            "name": tool.block,
            "input": input,
            "caller": {"type": "direct"},
        }))
    }

    /// Shows an event of a turn: as it came, but for the place of its block.
    pub async fn event(
        &mut self,
        kind: &str,
        event: &Value,
        whole: Option<&Value>,
        roster: &Roster,
        is_last: bool,
    ) -> Result<(), Gone> {
        let index = event.get("index").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
        match (kind, index) {
            ("content_block_start", _) => {
                let Some(block) = event.get("content_block") else { return Ok(()) };
                let Some(mut shown) = self.shown(block, roster, is_last) else {
                    self.places.push(None);
                    return Ok(());
                };
                if citations(&shown, roster).is_some() {
                    shown["citations"] = json!([]);
                }
                let place = self.content.len();
                self.places.push(Some(place));
                self.content.push(shown.clone());
                self.send(kind, &json!({"type": kind, "index": place, "content_block": shown})).await
            }
            ("content_block_delta" | "content_block_stop", Some(index)) => {
                let Some(place) = self.places.get(index).copied().flatten() else { return Ok(()) };
                if let (Some(block), "content_block_stop") = (whole, kind) {
                    self.complete(place, block);
                    self.cite(place, roster).await?;
                }
                let mut event = event.clone();
                event["index"] = json!(place);
                self.send(kind, &event).await
            }
            _ => self.send(kind, event).await,
        }
    }

    /// Says at the end of a text which results it refers to.
    async fn cite(&mut self, place: usize, roster: &Roster) -> Result<(), Gone> {
        let Some(citations) = self.content.get(place).and_then(|block| citations(block, roster)) else { return Ok(()) };
        for citation in &citations {
            let delta = json!({"type": "citations_delta", "citation": citation});
            let event = json!({"type": "content_block_delta", "index": place, "delta": delta});
            self.send("content_block_delta", &event).await?;
        }
        self.content[place]["citations"] = Value::Array(citations);
        Ok(())
    }

    /// What a block has become, under the name that the client knows it by.
    fn complete(&mut self, place: usize, block: &Value) {
        let Some(shown) = self.content.get_mut(place) else { return };
        if is(shown, "server_tool_use") {
            shown["input"] = block.get("input").cloned().unwrap_or_else(|| json!({}));
        } else {
            *shown = block.clone();
        }
    }

    /// Shows a block that was made here.
    pub async fn block(&mut self, block: Value) -> Result<(), Gone> {
        let place = self.content.len();
        self.content.push(block.clone());
        self.send(
            "content_block_start",
            &json!({"type": "content_block_start", "index": place, "content_block": block}),
        )
        .await?;
        self.send("content_block_stop", &json!({"type": "content_block_stop", "index": place})).await
    }

    pub async fn send(&self, kind: &str, event: &Value) -> Result<(), Gone> {
        let frame = encoded(kind, event);
        self.record(&frame);
        self.raw(frame).await
    }

    /// The last event, with what is said of the routing to this client alone.
    pub async fn stop(&self, (member, metadata): (&str, Option<&Value>)) -> Result<(), Gone> {
        let mut event = json!({"type": "message_stop"});
        self.record(&encoded("message_stop", &event));
        if let Some(metadata) = metadata {
            event[member] = metadata.clone();
        }
        self.raw(encoded("message_stop", &event)).await
    }

    /// Sends bytes as they are; nothing where the answer is sent whole.
    pub async fn raw(&self, frame: Bytes) -> Result<(), Gone> {
        match &self.frames {
            Some(frames) => frames.send(frame).await.map_err(|_| Gone),
            None => Ok(()),
        }
    }
}

fn encoded(kind: &str, event: &Value) -> Bytes {
    let mut out = BytesMut::new();
    sse::encode(&mut out, kind, event.to_string().as_bytes());
    out.freeze()
}

/// The citations of a text that has none of its own, once something was searched here.
fn citations(block: &Value, roster: &Roster) -> Option<Vec<Value>> {
    let has_own = block.get("citations").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let text = block.get("text").and_then(Value::as_str).filter(|_| is(block, "text") && !has_own)?;
    roster.citations(text)
}
