//! Containers of Docker or Podman: what the engine is asked for, step by step, and that nothing runs on which nobody waits
//! for any more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tidegate_core::{RequestId, WorkspaceId};
use tidegate_tools::sandbox::engine::{
    Call, Engine, LONGEST_COMMAND, State, Streams, Task, containers, id, problem, state, volumes,
};
use tidegate_tools::sandbox::{MOST_SAID, Order, Ran};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::containers::Containers;
use super::{GRACE, unreachable};
use crate::tasks;
use crate::upstream::whole;

/// What an answer may take that is about no command of a model's.
const PATIENCE: Duration = Duration::from_secs(30);
/// Times that a container is asked for which is about to go.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// What a new container waits for its first command.
const FIRST: u64 = 60;
/// How often a process is looked after: others may hold its streams open, and talk on.
const LOOK: Duration = Duration::from_millis(500);
/// What a process may take to be gone that was ended.
const LAST: Duration = Duration::from_secs(2);
/// Bytes that a command may say. More is read by nobody, and reading costs too.
const MOST_HEARD: u64 = 64 << 20;
/// As shells call what was killed.
const KILLED: i64 = 137;
/// And what cannot be started.
const NOT_RUN: i64 = 126;
const LONGEST_ANSWER: usize = 4 << 20;

type Outcome<T> = Result<T, &'static str>;

/// Does what a container is to do.
pub(super) async fn obey(
    containers: &Containers,
    engine: &Arc<Engine>,
    (container, owner): (&str, &WorkspaceId),
    order: Order<'_>,
) -> Outcome<Vec<Ran>> {
    match order {
        Order::Create { .. } => quick(have(containers, engine, container, owner)).await?,
        Order::Sleep { after_seconds } => {
            let (name, seconds) = (&*fresh_name(), after_seconds);
            quick(kept(engine, container, Task::Rest { name, seconds })).await?;
        }
        Order::Destroy => quick(destroy(engine, container)).await?,
        Order::Exec { commands, in_shell, timeout_ms, max_output_length, sleep_after_seconds } => {
            let (name, limit) = (fresh_name(), Duration::from_millis(timeout_ms));
            let seconds = (limit + GRACE).as_secs().saturating_add(sleep_after_seconds);
            quick(kept(engine, container, Task::Awake { name: &name, seconds })).await?;
            let at = At { engine: engine.clone(), container: container.to_owned(), name };
            let _awake = Awake { at, sleep_after_seconds };
            return all_of(engine, container, (commands, in_shell), (Instant::now() + limit, max_output_length)).await;
        }
    }
    Ok(Vec::new())
}

/// What takes no time to speak of, unless the engine does not answer.
async fn quick<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    timeout(PATIENCE, work).await.map_err(|_| unreachable("the engine does not answer"))?
}

/// Runs one command after the other, until one is over before its end.
async fn all_of(
    engine: &Arc<Engine>,
    container: &str,
    (commands, in_shell): (&[String], bool),
    (until, most): (Instant, usize),
) -> Outcome<Vec<Ran>> {
    let (mut all, mut room): (Vec<Ran>, usize) = (Vec::new(), MOST_SAID);
    for command in commands {
        let streams = Streams::keeping(most).within(room);
        let (ran, is_lost) = match run(engine, container, (command, in_shell), streams, (until, most)).await {
            Ok(ran) => ran,
            // What ran before it is told all the same.
            Err(_) if !all.is_empty() => (lost(String::new(), String::new()), true),
            Err(problem) => return Err(problem),
        };
        let is_over = is_lost || ran.exit_code.is_none();
        room = room.saturating_sub(ran.stdout.len() + ran.stderr.len());
        all.push(ran);
        if is_over {
            break;
        }
    }
    Ok(all)
}

/// What is told of a command whose container went away under it.
fn lost(stdout: String, stderr: String) -> Ran {
    let stderr = format!("{stderr}The container ended before the command did.");
    Ran { stdout, stderr, exit_code: Some(KILLED) }
}

fn fresh_name() -> String {
    RequestId::new().as_str().to_owned()
}

/// Has the container, running.
async fn have(containers: &Containers, engine: &Engine, container: &str, owner: &WorkspaceId) -> Outcome<()> {
    if there(engine).await?.iter().any(|(name, is_running)| name == container && *is_running) {
        return Ok(());
    }
    // Whoever makes one sees those that others have made.
    let _door = containers.door.lock().await;
    for _ in 0..TRIES {
        let all = there(engine).await?;
        containers.forget_others(&all);
        let running = all.iter().find(|(name, _)| name == container).map(|(_, is_running)| *is_running);
        match running {
            Some(true) => return Ok(()),
            None if all.len() >= engine.most => {
                let Some(oldest) = containers.idlest(&all, owner) else {
                    tracing::warn!(
                        containers = all.len(),
                        "all containers of the sandbox are in use: see max_containers"
                    );
                    return Err("too_many_requests");
                };
                destroy(engine, &oldest).await?;
                continue;
            }
            // It may have ended just now, and is about to go.
            Some(false) => {}
            None => make(engine, container).await?,
        }
        let (status, _) = ask(engine, Engine::start(container), &[204, 304, 404, 409]).await?;
        if matches!(status.as_u16(), 204 | 304) {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
    Err(unreachable("the container does not start"))
}

async fn there(engine: &Engine) -> Outcome<Vec<(String, bool)>> {
    let (_, body) = ask(engine, Engine::list(), &[200]).await?;
    containers(&body).ok_or_else(|| unreachable("the engine's list of containers is none"))
}

async fn make(engine: &Engine, container: &str) -> Outcome<()> {
    let (_, image) = ask(engine, engine.image(), &[200]).await?;
    let volumes = volumes(&image).ok_or_else(|| unreachable("the engine does not say what the image is"))?;
    if !volumes.is_empty() {
        return Err(unreachable(&format!("{} {}", engine.image, has_volumes(&volumes))));
    }
    ask(engine, engine.create(container, FIRST), &[201, 409]).await.map(|_| ())
}

async fn destroy(engine: &Engine, container: &str) -> Outcome<()> {
    ask(engine, Engine::destroy(container), &[204, 200, 404, 409]).await.map(|_| ())
}

/// Says how long the container is kept.
async fn kept(engine: &Engine, container: &str, task: Task<'_>) -> Outcome<()> {
    let ran = quickly(engine, container, task).await?;
    if ran.exit_code == Some(0) {
        return Ok(());
    }
    Err(unreachable(&format!("the image lacks what a container needs: {}", ran.stderr)))
}

/// What takes no time to speak of.
async fn quickly(engine: &Engine, container: &str, task: Task<'_>) -> Outcome<Ran> {
    let (id, mut streams) = (made(engine, container, task).await?, Streams::keeping(300));
    let body = begun(engine, &id).await?;
    let code = follow(engine, &id, body, &mut streams, Instant::now() + PATIENCE).await?;
    let (stdout, stderr) = streams.texts(300);
    Ok(Ran { stdout, stderr, exit_code: code })
}

/// Runs a command of a model's until it ends or its time is over. Also whether its container went away under it.
async fn run(
    engine: &Arc<Engine>,
    container: &str,
    (command, in_shell): (&str, bool),
    mut streams: Streams,
    (until, most): (Instant, usize),
) -> Outcome<(Ran, bool)> {
    if command.len() > LONGEST_COMMAND || command.contains('\0') {
        let stderr = format!("A command has at most {LONGEST_COMMAND} bytes and no NUL.");
        return Ok((Ran { stdout: String::new(), stderr, exit_code: Some(NOT_RUN) }, false));
    }
    let name = fresh_name();
    let task = match in_shell {
        true => Task::Shell { name: &name, command },
        false => Task::Process { name: &name, command },
    };
    let id = made(engine, container, task).await?;
    let at = At { engine: engine.clone(), container: container.to_owned(), name };
    let mut running = Running(Some((at, id.clone())));
    let body = begun(engine, &id).await?;
    let code = follow(engine, &id, body, &mut streams, until).await;
    let (stdout, stderr) = streams.texts(most);
    let exit_code = match code {
        Ok(Some(code)) => {
            running.0 = None;
            Some(code)
        }
        Ok(None) => {
            running.end().await;
            (streams.seen() > MOST_HEARD).then_some(KILLED)
        }
        Err(_) => return Ok((lost(stdout, stderr), true)),
    };
    Ok((Ran { stdout, stderr, exit_code }, false))
}

async fn made(engine: &Engine, container: &str, task: Task<'_>) -> Outcome<String> {
    let (_, body) = ask(engine, Engine::exec(container, task), &[201, 200]).await?;
    id(&body).ok_or_else(|| unreachable("the engine does not say what a command is called"))
}

/// What it says from now on.
async fn begun(engine: &Engine, id: &str) -> Outcome<Incoming> {
    let answer = send(engine, Engine::begin(id)).await?;
    if !answer.status().is_success() {
        return Err(refused(answer).await);
    }
    Ok(answer.into_body())
}

/// The code that it ended with; nothing when it still runs, because its time is over or it says too much.
async fn follow(
    engine: &Engine,
    id: &str,
    mut body: Incoming,
    streams: &mut Streams,
    until: Instant,
) -> Outcome<Option<i64>> {
    let mut look = Instant::now() + LOOK;
    loop {
        tokio::select! {
            frame = body.frame() => match frame.and_then(Result::ok) {
                Some(frame) => frame.data_ref().into_iter().for_each(|bytes| streams.push(bytes)),
                None => break,
            },
            () = sleep_until(until) => return Ok(None),
            () = sleep_until(look) => {
                if let Some(code) = code(engine, id).await? {
                    rest(&mut body, streams).await;
                    return Ok(Some(code));
                }
                look = Instant::now() + LOOK;
            }
        }
        if streams.seen() > MOST_HEARD {
            return Ok(None);
        }
    }
    // It said all that it says; that it ended may be known a moment later.
    loop {
        if let Some(code) = code(engine, id).await? {
            return Ok(Some(code));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        sleep(PAUSE).await;
    }
}

/// What a process that has ended said before that is still on its way. Others may hold its streams open, and talk on.
async fn rest(body: &mut Incoming, streams: &mut Streams) {
    let reading = async {
        while let Ok(Some(Ok(frame))) = timeout(PAUSE, body.frame()).await {
            frame.data_ref().into_iter().for_each(|bytes| streams.push(bytes));
            if streams.seen() > MOST_HEARD {
                break;
            }
        }
    };
    let _ = timeout(LAST, reading).await;
}

async fn code(engine: &Engine, id: &str) -> Outcome<Option<i64>> {
    Ok(match became(engine, id).await? {
        State::Ended(code) => Some(code),
        State::Made | State::Runs => None,
    })
}

async fn became(engine: &Engine, id: &str) -> Outcome<State> {
    let (_, body) = ask(engine, Engine::inspect(id), &[200]).await?;
    state(&body).ok_or_else(|| unreachable("the engine does not say what became of a command"))
}

/// Something in a container, by the name that it has there.
struct At {
    engine: Arc<Engine>,
    container: String,
    name: String,
}

/// A call for which a container stays awake. When it is over, the container's rest begins; nobody waits for that.
struct Awake {
    at: At,
    sleep_after_seconds: u64,
}

impl Drop for Awake {
    fn drop(&mut self) {
        let At { engine, container, name } = &mut self.at;
        let (engine, container, name) = (engine.clone(), std::mem::take(container), std::mem::take(name));
        let seconds = self.sleep_after_seconds;
        tasks::spawn("sandbox.rest", async move {
            let _ = timeout(PATIENCE, quickly(&engine, &container, Task::Rest { name: &name, seconds })).await;
        });
    }
}

/// A command that runs, and what the engine calls it; nothing when it ended. Whoever leaves takes it along.
struct Running(Option<(At, String)>);

impl Running {
    /// Ends it, and waits a while for that.
    async fn end(&mut self) {
        if let Some(ending) = self.leave() {
            let _ = timeout(LAST, ending).await;
        }
    }

    /// Has it ended; where that cannot be done, the container with it. A task does it, so that it is done to its end whoever
    /// leaves meanwhile.
    fn leave(&mut self) -> Option<JoinHandle<()>> {
        let (At { engine, container, name }, id) = self.0.take()?;
        Some(tasks::spawn("sandbox.end", async move { end(&engine, &container, &name, &id).await }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

async fn end(engine: &Engine, container: &str, name: &str, id: &str) {
    let gone = async {
        if quickly(engine, container, Task::End { name }).await?.exit_code != Some(0) {
            return Err("unavailable");
        }
        // One that has not begun will not: it finds that it was ended.
        while became(engine, id).await? == State::Runs {
            sleep(PAUSE).await;
        }
        Ok(())
    };
    if !matches!(timeout(LAST, gone).await, Ok(Ok(()))) {
        let _ = timeout(PATIENCE, destroy(engine, container)).await;
    }
}

/// An answer that is one of those that were expected, whole.
async fn ask(engine: &Engine, call: Call, expected: &[u16]) -> Outcome<(StatusCode, Bytes)> {
    let answer = send(engine, call).await?;
    let status = answer.status();
    if !expected.contains(&status.as_u16()) {
        return Err(refused(answer).await);
    }
    let body = whole(answer.into_body(), LONGEST_ANSWER).await;
    Ok((status, body.map_err(|_| unreachable("an answer of the engine broke off or is too long"))?))
}

async fn refused(answer: Response<Incoming>) -> &'static str {
    let status = answer.status();
    let body = whole(answer.into_body(), LONGEST_ANSWER).await.unwrap_or_default();
    unreachable(&format!("the engine answered {}: {}", status.as_u16(), problem(&body)))
}

async fn send(engine: &Engine, call: Call) -> Outcome<Response<Incoming>> {
    reach(engine, call).await.map_err(|problem| unreachable(&problem))
}

/// Whether the engine answers and has an image that can be used; otherwise what is wrong, and what to do.
pub(super) async fn look(engine: &Engine) -> Result<String, String> {
    let (socket, image) = (engine.socket.display(), &engine.image);
    let late = |_| format!("the engine at {socket} does not answer");
    let answer = timeout(PATIENCE, reach(engine, engine.image())).await.map_err(late)?;
    let answer =
        answer.map_err(|problem| format!("{problem} (does it run, and may this user write to its socket?)"))?;
    let status = answer.status().as_u16();
    let body = whole(answer.into_body(), LONGEST_ANSWER).await.unwrap_or_default();
    match (status, volumes(&body)) {
        (200, Some(volumes)) if volumes.is_empty() => Ok(format!("{socket} answers and has {image}")),
        (200, Some(volumes)) => Err(format!("{image} {}", has_volumes(&volumes))),
        (404, _) => Err(format!("{socket} does not have {image}: pull it first, with podman pull {image} or docker's")),
        (status, _) => Err(format!("the engine at {socket} answered {status}: {}", problem(&body))),
    }
}

fn has_volumes(volumes: &[String]) -> String {
    format!("has volumes ({}), which would be room on this machine without a limit", volumes.join(", "))
}

#[expect(clippy::disallowed_methods, reason = "a socket of the operator's, which no address of a caller's leads to")]
async fn reach(engine: &Engine, Call(method, path, body): Call) -> Result<Response<Incoming>, String> {
    let broken = |problem: &dyn std::fmt::Display| {
        format!("the engine at {} cannot be reached: {problem}", engine.socket.display())
    };
    let stream = UnixStream::connect(&engine.socket).await.map_err(|problem| broken(&problem))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|problem| broken(&problem))?;
    tasks::spawn("sandbox.engine", async move {
        let _ = connection.await;
    });
    let mut request = Request::builder().method(method).uri(path).header(HOST, "localhost");
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = Full::new(body.map(|body| Bytes::from(body.to_string())).unwrap_or_default());
    let request = request.body(body).map_err(|problem| broken(&problem))?;
    sender.send_request(request).await.map_err(|problem| broken(&problem))
}
