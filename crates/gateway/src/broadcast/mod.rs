//! Destinations hear of every request: what is to be told is made when a call is settled, and is written down with it, or
//! what it can be made of again; `deliver` brings it there, whenever that is. A request of which nobody wants to hear pays for
//! one look.

mod call;
mod deliver;
mod departed;
mod gait;
mod share;
mod stored;
mod tally;

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tidegate_core::exchange::Served;
use tidegate_core::{Exchange, Secret, WorkspaceId};
use tidegate_observe::broadcast::{Destination, Maker, Said, Service, Tells, Used};
use tidegate_store::journal::{Letter, Payload};
use tidegate_store::vault::Vault;
use tidegate_store::{Store, StoreError};
use tidegate_wire::envelope::Envelope;

use crate::agent::Assembly;
use crate::contents::{Failed, Wish};
use crate::egress;
use crate::failure::Failure;
use crate::keys::KeyEntry;

pub use call::test;
pub use deliver::{deliver, delivered};
pub use stored::{LABEL as CONFIG_LABEL, Stored, opened, plain as plain_config};
pub use tally::{Standing, Tallies};

/// What is kept of an answer on its way out, in bytes; what is told of it is far less.
const MOST_HEARD: usize = 2 << 20;
/// What is shorter waits as it is.
const SMALL: usize = 16 << 10;
/// How packed bytes begin; nothing that is told does.
const PACKED: [u8; 2] = [0x1f, 0x8b];
/// How OTLP's JSON begins, which an earlier release left as it is where nobody hears anything that was said. What is sealed
/// begins with as many bytes that are drawn, and never like this.
const OPEN: &[u8] = br#"{"resource":"#;
/// Begins what is written of a letter that is made again of its call's record, where nobody remembers it.
const RECORD: u8 = b'r';
/// Keeps what is sealed here apart from other uses of the same key.
const LABEL: &str = "broadcast";

thread_local! {
    /// Where letters are made before their length is known; most are about equally long.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Who is told, by the configuration.
#[derive(Default)]
pub struct Audience {
    pub destinations: Vec<Arc<Destination>>,
    pub service: Service,
    /// Signs what webhooks get.
    pub webhook_secret: Option<Secret>,
    pub bounds: Bounds,
    /// What people's destinations may know stays as it is.
    pub locks_privacy: bool,
}

/// What waits for one destination at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub letters: u64,
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { letters: 1_000_000, bytes: 2 << 30 }
    }
}

impl fmt::Debug for Audience {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.destinations.iter().map(|destination| &destination.id);
        out.debug_list().entries(ids).finish()
    }
}

impl Audience {
    pub fn find(&self, id: &str) -> Option<&Arc<Destination>> {
        self.destinations.iter().find(|destination| destination.id == id)
    }

    /// Whether somebody may want to hear of a workspace's requests, and of what was said in them.
    fn listens(&self, stored: &[Arc<Destination>], workspace: &WorkspaceId) -> Option<bool> {
        let concerns = |destination: &&Arc<Destination>| {
            destination.scope.workspace.as_ref().is_none_or(|wanted| wanted == workspace)
        };
        let reads = |destination: &Arc<Destination>| {
            !destination.is_private || destination.scope.filter.as_ref().is_some_and(|filter| filter.reads_content())
        };
        self.destinations.iter().chain(stored).filter(concerns).map(reads).reduce(|one, other| one || other)
    }
}

/// Whether somebody who is not the operator may have this address told of requests, or why not. Plain text goes only where
/// the operator allows it.
pub fn may_be_called(url: &str, rules: &egress::Rules) -> Result<(), &'static str> {
    let place = egress::checked(url, rules).map_err(|egress::Refused(reason)| match reason {
        egress::Reason::Port => "must have a port that is among egress.ports",
        egress::Reason::Own => "must not be the gateway itself or what it keeps its data in",
        _ => "must be a public address, or one that egress.allow names",
    })?;
    match place {
        egress::Checked::Tls | egress::Checked::Listed => Ok(()),
        egress::Checked::Plain => Err("must begin with https://: plain text goes only where egress.allow says so"),
    }
}

/// What is kept of a request for those who will be told of it.
pub(crate) struct Overheard {
    trace: Option<String>,
    parent: Option<(String, String)>,
    /// Where somebody wants to hear what was said.
    body: Option<Bytes>,
    answer: Vec<u8>,
    /// Bytes of it that did not fit.
    missed: usize,
    /// The tools that were run since the turn before this one.
    tools: Vec<Used>,
    /// Where its workspace wants it kept.
    wish: Option<Wish>,
    /// Why there is no whole answer; only where it is kept.
    failure: Option<Failed>,
}

impl Overheard {
    /// Nothing where nobody listens.
    pub fn of(
        audience: &Audience,
        stored: &[Arc<Destination>],
        workspace: &WorkspaceId,
        envelope: &Envelope<'_>,
        parent: Option<&str>,
        body: &Bytes,
        wish: Option<Wish>,
    ) -> Option<Box<Self>> {
        let listens = audience.listens(stored, workspace);
        if listens.is_none() && wish.is_none() {
            return None;
        }
        let reads = listens == Some(true) || wish.is_some();
        Some(Box::new(Self {
            trace: envelope.trace.map(|trace| trace.get().to_owned()),
            parent: parent.and_then(Said::traceparent),
            body: reads.then(|| body.clone()),
            answer: Vec::new(),
            missed: 0,
            tools: Vec::new(),
            wish,
            failure: None,
        }))
    }

    /// The same of a request for something else than a message, which has another form: [`Overheard::asked`] takes what is said in it.
    pub fn of_another(
        audience: &Audience,
        stored: &[Arc<Destination>],
        workspace: &WorkspaceId,
        parent: Option<&str>,
    ) -> Option<Box<Self>> {
        let reads = audience.listens(stored, workspace)?;
        Some(Box::new(Self {
            trace: None,
            parent: parent.and_then(Said::traceparent),
            body: reads.then(Bytes::new),
            answer: Vec::new(),
            missed: 0,
            tools: Vec::new(),
            wish: None,
            failure: None,
        }))
    }

    /// Takes what was asked, in the Messages format, where somebody wants to hear it.
    pub fn asked(&mut self, body: impl FnOnce() -> Bytes) {
        if let Some(known) = &mut self.body {
            *known = body();
        }
    }

    /// Whether those who listen may know only how something was asked for, and not what was said.
    pub fn is_discreet(&self) -> bool {
        self.body.is_none()
    }

    /// Takes the next bytes of the answer.
    pub fn take(&mut self, bytes: &[u8]) {
        if self.body.is_some() && self.answer.len() + bytes.len() <= MOST_HEARD {
            self.answer.extend_from_slice(bytes);
        } else {
            self.missed += bytes.len();
        }
    }

    /// Forgets what was said.
    pub fn hush(&mut self) {
        (self.body, self.wish) = (None, None);
    }

    /// There will be no whole answer.
    pub fn failed(&mut self, failure: &Failure) {
        if self.wish.is_some() {
            self.failure = Some(Failed { status: failure.status, message: failure.message.to_string() });
        }
    }

    pub fn wish(&self) -> Option<&Wish> {
        self.wish.as_ref()
    }

    pub fn failure(&self) -> Option<&Failed> {
        self.failure.as_ref()
    }

    pub fn missed(&self) -> usize {
        self.missed
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        self.answer.len() + self.body.as_ref().map_or(0, Bytes::len)
    }

    pub fn used(&mut self, tools: Vec<Used>) {
        self.tools = tools;
    }

    /// What the caller calls it.
    pub fn named(&self) -> Said {
        let trace = self.trace.as_deref().and_then(|trace| serde_json::from_str(trace).ok());
        Said { trace: trace.unwrap_or_default(), parent: self.parent.clone(), ..Said::default() }
    }

    /// With what was said.
    pub fn said(&self, named: Said, metadata: &str) -> Said {
        let request = self.body.as_ref().and_then(|body| serde_json::from_slice(body).ok());
        Said { request, answer: blocks(&self.answer, metadata), tools: self.tools.clone(), ..named }
    }
}

/// The blocks of an answer, whole or streamed; of one that was cut short those that are there.
fn blocks(answer: &[u8], metadata: &str) -> Vec<Value> {
    if answer.is_empty() {
        return Vec::new();
    }
    if let Ok(Value::Object(mut whole)) = serde_json::from_slice::<Value>(answer) {
        return match whole.remove("content") {
            Some(Value::Array(blocks)) => blocks,
            _ => Vec::new(),
        };
    }
    let mut assembly = Assembly::default();
    for line in String::from_utf8_lossy(answer).lines() {
        let Some(event) = line.strip_prefix("data:").and_then(|data| serde_json::from_str::<Value>(data).ok()) else {
            continue;
        };
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        assembly.take(&kind, &event, metadata);
    }
    assembly.finish().blocks
}

/// What each destination is to be told of a settled call.
pub(crate) fn letters(
    audience: &Audience,
    stored: &[Arc<Destination>],
    vault: &Vault,
    (exchange, served): (&Exchange, Option<&Served>),
    key: &KeyEntry,
    overheard: &Overheard,
    metadata: &str,
) -> Vec<Letter> {
    let named = overheard.named();
    let concerned = concerned(audience, stored, exchange, &named);
    if concerned.is_empty() {
        return Vec::new();
    }
    let said = overheard.said(named, metadata);
    let maker = Maker { key_name: &key.name, creator: key.creator.as_deref(), service: &audience.service, served };
    written(&concerned, vault, exchange, &said, maker)
}

/// What they are to be told of calls that a dead process left open: that they were there, and what they cost. What was said
/// in them is known to nobody.
pub async fn of_lost(
    audience: &Audience,
    store: &Store,
    vault: &Vault,
    exchanges: &[Exchange],
) -> Result<Vec<Letter>, StoreError> {
    if exchanges.is_empty() {
        return Ok(Vec::new());
    }
    let (_, stored, _) = stored::all(store, vault).await?;
    let (mut letters, said) = (Vec::new(), Said::default());
    for exchange in exchanges {
        let concerned = concerned(audience, &stored, exchange, &said);
        if concerned.is_empty() {
            continue;
        }
        let key = store.find_key(&exchange.key).await?;
        let (name, creator) = key.map(|key| (key.name, key.creator)).unwrap_or_default();
        let maker = Maker { key_name: &name, creator: creator.as_deref(), service: &audience.service, served: None };
        letters.extend(written(&concerned, vault, exchange, &said, maker));
    }
    Ok(letters)
}

/// Those who may want to hear of a call.
fn concerned<'a>(
    audience: &'a Audience,
    stored: &'a [Arc<Destination>],
    exchange: &Exchange,
    named: &Said,
) -> Vec<&'a Arc<Destination>> {
    let all = audience.destinations.iter().chain(stored);
    all.filter(|destination| destination.scope.may_admit(&destination.id, exchange, named)).collect()
}

fn written(
    concerned: &[&Arc<Destination>],
    vault: &Vault,
    exchange: &Exchange,
    said: &Said,
    maker: Maker<'_>,
) -> Vec<Letter> {
    let mut letters = Vec::with_capacity(concerned.len());
    let mut scratch = SCRATCH.take();
    for destination in concerned {
        scratch.clear();
        if !destination.told_into(&mut scratch, exchange, said, maker) {
            continue;
        }
        let told: Arc<[u8]> = Arc::from(&scratch[..]);
        let payload = if destination.can_be_told_again(said) && told.len() < SMALL {
            // The journal has all that it is made of.
            Payload::Record([RECORD, marks(destination.tells)])
        } else {
            let Some(sealed) = sealed(vault, &destination.id, &told) else {
                tracing::error!(destination = %destination.id, "what it is to be told could not be sealed");
                continue;
            };
            Payload::Own(sealed.into())
        };
        letters.push(Letter {
            destination: destination.id.clone(),
            kind: destination.kind.as_str(),
            generation: exchange.id,
            payload,
            told: (told.len() < SMALL).then_some(told),
            at: exchange.started.plus(Duration::from_millis(exchange.duration_ms.into())),
        });
    }
    if scratch.capacity() <= SMALL {
        SCRATCH.set(scratch);
    }
    letters
}

/// What a letter told beside the rest, in the byte before its call's record.
fn marks(tells: Tells) -> u8 {
    u8::from(tells.cost) | u8::from(tells.context) << 1
}

/// A letter once more, of its call's record; `None` where it is no such letter. `Some(None)`: nobody can make it any more.
fn told_again(payload: &[u8], destination: &Destination, service: &Service) -> Option<Option<Vec<u8>>> {
    let [RECORD, marks, record @ ..] = payload else { return None };
    // What is sealed may begin with that byte, too; never with the rest.
    let record = record.starts_with(br#"{"id":"#).then_some(record)?;
    let tells = Tells { cost: marks & 1 != 0, identity: false, context: marks & 2 != 0 };
    let exchange: Option<Exchange> = serde_json::from_slice(record).ok();
    Some(exchange.and_then(|exchange| destination.told_again(&exchange, tells, service)))
}

fn sealed(vault: &Vault, destination: &str, told: &[u8]) -> Option<Vec<u8>> {
    // Packing what is small costs more than all the rest of it.
    let packed = if told.len() < SMALL { Cow::Borrowed(told) } else { packed(told)?.into() };
    vault.seal_blob(LABEL, destination.as_bytes(), &packed).ok()
}

pub(crate) fn packed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).ok()?;
    packed.finish().ok()
}
