//! `bash` and `shell`: commands that a model runs in a container of the operator's sandbox. The gateway tells a service or an
//! engine; it starts no process itself.

mod containers;
mod engine;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::{KeyHash, Money, RequestId, Timestamp, WorkspaceId};
use tidegate_tools::sandbox::{Order, Place, Ran, Sandbox as Yard, Service, cut, read};
use tokio::time::timeout;

pub(crate) use self::containers::Containers;
use super::inner::Desk;
use super::reader::Reader;
use super::run::Outcome;
use crate::Gateway;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::relay::Aside;
use crate::snapshot::Settings;
use crate::upstream::whole;

/// Their names behind the brand, and as the model calls them.
pub(super) const BASH: &str = "bash";
pub(super) const SHELL: &str = "shell";
/// What the record of a fee names.
const PROVIDER: &str = "sandbox";
/// How long a container sleeps after, when the request says nothing else, and at most.
const SLEEP_AFTER: u64 = 900;
const LATEST_SLEEP: u64 = 2_592_000;
/// The same for a call.
const TIMEOUT_MS: u64 = 60_000;
const LONGEST_TIMEOUT_MS: u64 = 600_000;
/// And for the characters of each stream.
const OUTPUT: usize = 20_000;
const MOST_OUTPUT: usize = 200_000;
/// What a call may take beyond its own time.
const GRACE: Duration = Duration::from_secs(5);
/// And what a service may take to hear when the container may sleep.
const LAST_WORD: Duration = Duration::from_secs(2);
/// Commands of one call.
const MOST_COMMANDS: usize = 64;
const LONGEST_CONTAINER: usize = 20;
/// Bytes of the service's answer at most.
const LONGEST_ANSWER: usize = 64 << 20;

/// Which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Bash,
    Shell,
}

/// The tool.
#[derive(Clone, Debug)]
pub(super) struct Sandbox {
    way: Way,
    yard: Arc<Yard>,
    /// As clients know it. One for all tools of a request that name none.
    container: Arc<OnceLock<String>>,
    sleep_after: u64,
    brand: String,
}

impl PartialEq for Sandbox {
    fn eq(&self, other: &Self) -> bool {
        self.way == other.way && Arc::ptr_eq(&self.container, &other.container)
    }
}

/// What a call asks for.
#[derive(Debug, PartialEq)]
struct Asked {
    commands: Vec<String>,
    is_fresh: bool,
    timeout_ms: u64,
    output: usize,
}

/// Whether the client runs the commands of `bash` itself.
pub(super) fn is_clients(reader: &Reader<'_>, wire: &str) -> Result<bool, Failure> {
    let brand = wire.split(':').next().unwrap_or_default();
    match reader.text("engine")?.unwrap_or("auto") {
        "auto" | "native" => Ok(true),
        engine if engine == brand => Ok(false),
        _ => Err(reader.wrong("engine", &format!("must be one of auto, native, {brand}"))),
    }
}

/// What commands cost while they run. Whoever leaves in the meantime pays for what ran until then: the service goes on.
struct Meter {
    gate: Arc<Gateway>,
    yard: Arc<Yard>,
    aside: Option<Aside>,
    /// Since when they run, and until when.
    began: Option<Timestamp>,
    ended: Option<Timestamp>,
}

impl Meter {
    fn fee(&self) -> Money {
        let Some(began) = self.began else { return Money::ZERO };
        let ended = self.ended.unwrap_or_else(|| self.gate.clock.now());
        let seconds = ended.since(began).as_millis().div_ceil(1_000).max(1);
        self.yard.fee(u64::try_from(seconds).unwrap_or(u64::MAX))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(aside) = self.aside.take_if(|_| self.began.is_some()) {
            aside.pay_anyway(PROVIDER, self.fee());
        }
    }
}

impl Sandbox {
    /// `before`: those that stand before it in the same request.
    pub fn of(
        reader: &Reader<'_>,
        wire: &str,
        name: &str,
        settings: &Settings,
        before: &[&Self],
    ) -> Result<Self, Failure> {
        let way = if name == BASH { Way::Bash } else { Way::Shell };
        let brand = wire.split(':').next().unwrap_or_default();
        if way == Way::Shell && reader.text("engine")?.is_some_and(|engine| engine != "auto" && engine != brand) {
            return Err(reader.wrong("engine", &format!("must be one of auto, {brand}")));
        }
        let shared =
            || before.iter().find(|other| other.container.get().is_none()).map(|other| other.container.clone());
        let container = match referred(reader)? {
            Some(id) => Arc::new(OnceLock::from(id)),
            None => shared().unwrap_or_default(),
        };
        let sleep_after = reader.number("sleep_after_seconds", LATEST_SLEEP)?.unwrap_or(SLEEP_AFTER);
        let unconfigured = || Failure::invalid(format!("{wire} is not configured on this deployment"));
        let yard = settings.tools.sandbox.clone().ok_or_else(unconfigured)?;
        Ok(Self { way, yard, container, sleep_after, brand: settings.brand.clone() })
    }

    pub fn name(&self) -> &'static str {
        match self.way {
            Way::Bash => BASH,
            Way::Shell => SHELL,
        }
    }

    /// A container that no tool of the request names is that of its session.
    pub fn belongs_to(&self, session: Option<&str>) {
        if let Some(session) = session {
            let _ =
                self.container.set(format!("s{}", &KeyHash::of(session.as_bytes()).to_hex()[..LONGEST_CONTAINER - 1]));
        }
    }

    fn container(&self) -> &str {
        self.container.get_or_init(|| format!("r{}", &RequestId::new().as_str()[4..][..LONGEST_CONTAINER - 1]))
    }

    pub fn required(&self) -> &'static [&'static str] {
        match self.way {
            Way::Bash => &[],
            Way::Shell => &["commands"],
        }
    }

    pub fn description(&self) -> (String, Value) {
        let text_of = |description: &str| json!({"type": "string", "description": description});
        let number = |description: &str, most: u64| json!({"type": "integer", "description": description, "minimum": 1, "maximum": most});
        let mut properties = json!({
            "commands": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": MOST_COMMANDS,
                "description": "Commands that are run one after another",
            },
            "timeout_ms": number("Milliseconds for all of them together; 60000 without it", LONGEST_TIMEOUT_MS),
            "max_output_length": number("Characters of each output stream; 20000 without it", MOST_OUTPUT as u64),
        });
        let text = match self.way {
            Way::Bash => {
                properties["command"] = text_of("One command, in place of commands");
                properties["restart"] =
                    json!({"type": "boolean", "description": "Whether to begin in a fresh container"});
                "Runs commands in a bash session in a container that is apart from everything else; directory, variables and \
                 files stay from one call to the next. Call it to compute, to try code or to work with files there; not \
                 for what you know. It usually has no network."
            }
            Way::Shell => {
                "Runs commands in a container that is apart from everything else, each as a process of its own; files stay \
                 from one call to the next. Call it to compute, to try code or to work with files there; not for what \
                 you know. It usually has no network."
            }
        };
        (text.to_owned(), properties)
    }

    /// How long a call may take.
    pub fn time_for(&self, input: &Value) -> Duration {
        let timeout = asked(self.way, input).map_or(TIMEOUT_MS, |asked| asked.timeout_ms);
        Duration::from_millis(timeout) + GRACE
    }

    pub async fn run(&self, desk: &Desk, input: &Value) -> Outcome {
        let asked = match asked(self.way, input) {
            Ok(asked) => asked,
            Err(problem) => return self.failed("invalid_tool_input", problem),
        };
        let (gate, key) = (&desk.gate, &desk.key);
        // All of the time that it may take, and most sandboxes cost nothing.
        let aside = match self.yard.fee(self.time_for(input).as_millis().div_ceil(1_000) as u64) {
            Money::ZERO => None,
            most => match Aside::open(gate, &desk.snapshot, key, &desk.inner, &desk.model).held(most).await {
                Some(held) => Some(held),
                None => return self.failed("unavailable", "The limits of the key do not cover what it may cost."),
            },
        };
        let mut meter = Meter { gate: gate.clone(), yard: self.yard.clone(), aside, began: None, ended: None };
        let ran = self.exec(gate, key, &asked, &mut meter).await;
        let fee = if ran.is_ok() { meter.fee() } else { Money::ZERO };
        if let Some(aside) = meter.aside.take() {
            aside.pay(gate, PROVIDER, fee).await;
        }
        match ran {
            Ok(ran) => Outcome { fee, ..self.shown(&asked, ran) },
            Err(code) => self.failed(code, reason(code)),
        }
    }

    /// Has the commands run.
    async fn exec(
        &self,
        gate: &Gateway,
        key: &KeyEntry,
        asked: &Asked,
        meter: &mut Meter,
    ) -> Result<Vec<Ran>, &'static str> {
        let container = place(key, self.container());
        // A service knows by itself which are in use.
        let is_engines = matches!(self.yard.place, Place::Engine(_));
        let _using = is_engines.then(|| gate.containers.enter(&container, &key.workspace));
        let container = (container.as_str(), &key.workspace);
        if asked.is_fresh {
            self.tell(gate, container, Order::Destroy).await?;
        }
        self.tell(gate, container, Order::Create { sleep_after_seconds: self.sleep_after }).await?;
        let mut ran = Vec::new();
        if !asked.commands.is_empty() {
            let order = Order::Exec {
                commands: &asked.commands,
                in_shell: self.way == Way::Bash,
                timeout_ms: asked.timeout_ms,
                max_output_length: asked.output,
                sleep_after_seconds: self.sleep_after,
            };
            meter.began = Some(gate.clock.now());
            ran = self.tell(gate, container, order).await?;
            meter.ended = Some(gate.clock.now());
            if is_engines {
                // It sees to its container's rest itself.
                return Ok(ran);
            }
            let is_whole = ran.len() == asked.commands.len() || ran.last().is_some_and(|last| last.exit_code.is_none());
            if ran.len() > asked.commands.len() || !is_whole {
                return Err(unreachable("its answer is not about the commands"));
            }
        }
        // The commands ran; that this did not go well takes nothing from them, nor does it hold up what they said.
        let _ = timeout(LAST_WORD, self.tell(gate, container, Order::Sleep { after_seconds: self.sleep_after })).await;
        Ok(ran)
    }

    /// What came of the commands, where there are any.
    async fn tell(
        &self,
        gate: &Gateway,
        container: (&str, &WorkspaceId),
        order: Order<'_>,
    ) -> Result<Vec<Ran>, &'static str> {
        match &self.yard.place {
            Place::Service(service) => ordered(gate, service, container.0, order).await,
            Place::Engine(engine) => engine::obey(&gate.containers, engine, container, order).await,
        }
    }

    /// What came of a call, as the client gets to see it.
    fn shown(&self, asked: &Asked, ran: Vec<Ran>) -> Outcome {
        let container = self.container();
        let content = match self.way {
            Way::Bash => {
                // Those that were not begun any more are not among them.
                if ran.last().is_some_and(|last| last.exit_code.is_none()) {
                    return self.failed("execution_time_exceeded", reason("execution_time_exceeded"));
                }
                let all = |of: fn(&Ran) -> &str| cut(ran.iter().map(of).collect(), asked.output);
                json!({
                    "type": format!("{}_bash_result", self.brand),
                    "command": asked.commands.join("\n"),
                    "stdout": all(|ran| &ran.stdout),
                    "stderr": all(|ran| &ran.stderr),
                    "exit_code": ran.last().and_then(|last| last.exit_code).unwrap_or(0),
                    "container_id": container,
                })
            }
            Way::Shell => {
                let output = ran.iter().map(|ran| {
                    let outcome = match ran.exit_code {
                        Some(code) => json!({"type": "exit", "exit_code": code}),
                        None => json!({"type": "timeout"}),
                    };
                    json!({"stdout": ran.stdout, "stderr": ran.stderr, "outcome": outcome})
                });
                json!({
                    "type": format!("{}_shell_result", self.brand),
                    "output": output.collect::<Vec<_>>(),
                    "container_id": container,
                })
            }
        };
        self.outcome(content)
    }

    pub fn failed(&self, code: &str, message: &str) -> Outcome {
        // The public words have none for a call beyond those that may be made.
        let code = if code == "max_uses_exceeded" { "too_many_requests" } else { code };
        let kind = format!("{}_{}_error", self.brand, self.name());
        self.outcome(json!({"type": kind, "error_code": code, "error_message": message}))
    }

    fn outcome(&self, content: Value) -> Outcome {
        let (text, is_error) = told(&content);
        let block = format!("{}_{}_tool_result", self.brand, self.name());
        Outcome { text, is_error, shown: Some((Cow::Owned(block), content)), ..Outcome::default() }
    }
}

/// Whether an engine answers and has the image, in words, or what is wrong; nothing for a service, which has no call for that.
pub async fn look(yard: &Yard) -> Option<Result<String, String>> {
    match &yard.place {
        Place::Service(_) => None,
        Place::Engine(engine) => Some(engine::look(engine).await),
    }
}

/// Tells a service.
async fn ordered(
    gate: &Gateway,
    service: &Service,
    container: &str,
    order: Order<'_>,
) -> Result<Vec<Ran>, &'static str> {
    let call = service.call(container, order);
    let (uri, headers, body) = call.ok_or_else(|| unreachable("its address or key cannot be sent"))?;
    let sent = gate.upstream.send(&uri, headers, bytes::Bytes::from(body).into()).await;
    let answer = sent.map_err(|_| unreachable("it did not answer"))?;
    match answer.status().as_u16() {
        200 | 204 => {}
        429 => return Err("too_many_requests"),
        status => return Err(unreachable(&format!("it answered {status}"))),
    }
    let body = whole(answer.into_body(), LONGEST_ANSWER).await;
    let body = body.map_err(|_| unreachable("its answer broke off or is too long"))?;
    match order {
        Order::Exec { max_output_length, .. } => {
            read(&body, max_output_length).ok_or_else(|| unreachable("its answer is none"))
        }
        Order::Create { .. } | Order::Sleep { .. } | Order::Destroy => Ok(Vec::new()),
    }
}

/// The tool whose results have blocks of this kind.
pub(super) fn shown_by(kind: &str) -> Option<&'static str> {
    let of = kind.strip_suffix("_tool_result")?;
    [BASH, SHELL].into_iter().find(|name| of.strip_suffix(name).is_some_and(|brand| brand.ends_with('_')))
}

/// What the model reads of a result, and whether it is an error: the same now and when the block comes back.
pub(super) fn told(content: &Value) -> (String, bool) {
    let member = |name: &str| content.get(name).cloned().unwrap_or_default();
    if content.get("error_code").is_some() {
        return (json!({"error": member("error_code"), "message": member("error_message")}).to_string(), true);
    }
    if content.get("output").is_some() {
        return (json!({"output": member("output")}).to_string(), false);
    }
    let told = json!({
        "command": member("command"),
        "stdout": member("stdout"),
        "stderr": member("stderr"),
        "exitCode": member("exit_code"),
    });
    (told.to_string(), false)
}

fn reason(code: &str) -> &'static str {
    match code {
        "too_many_requests" => "The sandbox takes no more at the moment.",
        "execution_time_exceeded" => "The commands did not end in time and were stopped.",
        _ => "The sandbox cannot be reached.",
    }
}

fn unreachable(problem: &str) -> &'static str {
    tracing::warn!(problem, "the sandbox failed");
    "unavailable"
}

/// What the service knows a container by: nobody can name one of another workspace.
fn place(key: &KeyEntry, container: &str) -> String {
    let parts = [key.organisation.0.as_bytes(), key.workspace.0.as_bytes(), container.as_bytes()].join(&0);
    format!("tg-{}", &KeyHash::of(&parts).to_hex()[..40])
}

/// The container that a request refers to.
fn referred(reader: &Reader<'_>) -> Result<Option<String>, Failure> {
    let Some(environment) = reader.object("environment")? else { return Ok(None) };
    match environment.text("type")? {
        Some("container_auto") => Ok(None),
        Some("container_reference") => {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            let id = environment.text("container_id")?.unwrap_or_default();
            if id.is_empty() || id.len() > LONGEST_CONTAINER || !id.bytes().all(fits) {
                return Err(environment.wrong("container_id", "must be 1 to 20 letters, digits, _ and -"));
            }
            Ok(Some(id.to_owned()))
        }
        _ => Err(environment.wrong("type", "must be one of container_auto, container_reference")),
    }
}

/// What a call asks for, or what the model is told is wrong with it.
fn asked(way: Way, input: &Value) -> Result<Asked, &'static str> {
    let get = |name: &str| input.get(name).filter(|value| !value.is_null());
    let number = |name: &str, usual: u64, most: u64, problem: &'static str| match get(name) {
        None => Ok(usual),
        Some(value) => value.as_u64().filter(|number| *number > 0).map(|number| number.min(most)).ok_or(problem),
    };
    let is_fresh = way == Way::Bash && get("restart") == Some(&Value::Bool(true));
    let mut commands: Vec<String> = match get("commands") {
        None => Vec::new(),
        Some(value) => {
            let list = value.as_array().map(|list| list.iter().map(|one| one.as_str().map(str::to_owned)).collect());
            list.and_then(|list: Option<_>| list).ok_or("commands must be an array of strings")?
        }
    };
    if let Some(command) = get("command").filter(|_| way == Way::Bash) {
        commands.insert(0, command.as_str().ok_or("command must be a string")?.to_owned());
    }
    if commands.is_empty() && !is_fresh {
        return Err(match way {
            Way::Bash => "command or commands is needed",
            Way::Shell => "commands must hold at least one command",
        });
    }
    if commands.len() > MOST_COMMANDS {
        return Err("commands must hold at most 64 commands");
    }
    Ok(Asked {
        commands,
        is_fresh,
        timeout_ms: number(
            "timeout_ms",
            TIMEOUT_MS,
            LONGEST_TIMEOUT_MS,
            "timeout_ms must be an integer from 1 to 600000",
        )?,
        output: number(
            "max_output_length",
            OUTPUT as u64,
            MOST_OUTPUT as u64,
            "max_output_length must be an integer from 1 to 200000",
        )? as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_within_its_limits() {
        let ask = |way, input: Value| asked(way, &input);
        let plain = Asked { commands: vec!["ls".to_owned()], is_fresh: false, timeout_ms: 60_000, output: 20_000 };
        assert_eq!(ask(Way::Bash, json!({"command": "ls"})), Ok(plain));
        let both = ask(
            Way::Bash,
            json!({"command": "a", "commands": ["b"], "restart": true, "timeout_ms": 9_999_999,
            "max_output_length": 9_999_999}),
        );
        let wanted = Asked {
            commands: vec!["a".to_owned(), "b".to_owned()],
            is_fresh: true,
            timeout_ms: 600_000,
            output: 200_000,
        };
        assert_eq!(both, Ok(wanted));
        assert_eq!(ask(Way::Bash, json!({"restart": true})).unwrap().commands, [""; 0]);
        for (way, input, problem) in [
            (Way::Bash, json!({}), "command or commands is needed"),
            (Way::Bash, json!({"command": 1}), "command must be a string"),
            (Way::Shell, json!({"command": "ls"}), "commands must hold at least one command"),
            (Way::Shell, json!({"commands": "ls"}), "commands must be an array of strings"),
            (Way::Shell, json!({"commands": ["ls", 1]}), "commands must be an array of strings"),
            (
                Way::Shell,
                json!({"commands": ["ls"], "timeout_ms": 0}),
                "timeout_ms must be an integer from 1 to 600000",
            ),
            (Way::Shell, json!({"commands": vec!["ls"; 65]}), "commands must hold at most 64 commands"),
        ] {
            assert_eq!(ask(way, input.clone()), Err(problem), "{input}");
        }
    }

    #[test]
    fn what_is_told_of_a_block_is_what_was_told_at_first() {
        let bash = json!({"type": "tidegate_bash_result", "command": "ls", "stdout": "a", "stderr": "", "exit_code": 0,
            "container_id": "c"});
        let (text, is_error) = told(&bash);
        assert_eq!((&*text, is_error), (r#"{"command":"ls","stdout":"a","stderr":"","exitCode":0}"#, false));
        let shell = json!({"type": "tidegate_shell_result", "output": [], "container_id": "c"});
        assert_eq!(told(&shell), (r#"{"output":[]}"#.to_owned(), false));
        let error = json!({"type": "tidegate_bash_error", "error_code": "unavailable", "error_message": "x"});
        assert_eq!(told(&error), (r#"{"error":"unavailable","message":"x"}"#.to_owned(), true));
    }
}
