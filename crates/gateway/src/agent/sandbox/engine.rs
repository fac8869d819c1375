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
use tidegate_core::RequestId;
use tidegate_tools::sandbox::engine::{Call, Engine, LONGEST_COMMAND, Streams, Task, containers, id, problem, state};
use tidegate_tools::sandbox::{Order, Ran};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

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
/// How long a process may say nothing before it is looked after: others may hold its streams open.
const QUIET: Duration = Duration::from_millis(500);
/// What a process may take to be gone that was ended.
const LAST: Duration = Duration::from_secs(2);
/// Bytes that a command may say. More is read by nobody, and reading costs too.
const MOST_SAID: u64 = 64 << 20;
/// As shells call what was killed.
const KILLED: i64 = 137;
/// And what cannot be started.
const NOT_RUN: i64 = 126;
const LONGEST_ANSWER: usize = 4 << 20;

type Outcome<T> = Result<T, &'static str>;

/// Does what a container is to do.
pub(super) async fn obey(engine: &Arc<Engine>, container: &str, order: Order<'_>) -> Outcome<Vec<Ran>> {
    let quick = async {
        match order {
            Order::Create { .. } => have(engine, container).await,
            Order::Sleep { after_seconds } => renew(engine, container, after_seconds).await,
            Order::Destroy => destroy(engine, container).await,
            Order::Exec { sleep_after_seconds, timeout_ms, .. } => {
                let longest = Duration::from_millis(timeout_ms) + GRACE;
                renew(engine, container, longest.as_secs().saturating_add(sleep_after_seconds)).await
            }
        }
    };
    timeout(PATIENCE, quick).await.map_err(|_| unreachable("the engine does not answer"))??;
    let mut all = Vec::new();
    if let Order::Exec { commands, in_shell, timeout_ms, max_output_length, .. } = order {
        let until = Instant::now() + Duration::from_millis(timeout_ms);
        for command in commands {
            let ran = run(engine, container, (command, in_shell), (until, max_output_length)).await?;
            let is_over = ran.exit_code.is_none();
            all.push(ran);
            if is_over {
                break;
            }
        }
    }
    Ok(all)
}

/// Has the container, running.
async fn have(engine: &Engine, container: &str) -> Outcome<()> {
    for _ in 0..TRIES {
        let (_, body) = ask(engine, Engine::list(), &[200]).await?;
        let all = containers(&body).ok_or_else(|| unreachable("the engine's list of containers is none"))?;
        let running = all.iter().find(|(name, _)| name == container).map(|(_, is_running)| *is_running);
        match running {
            Some(true) => return Ok(()),
            None if all.len() >= engine.most => return Err("too_many_requests"),
            // It may have ended just now, and is about to go.
            Some(false) => {}
            None => {
                ask(engine, engine.create(container, FIRST), &[201, 409]).await?;
            }
        }
        let (status, _) = ask(engine, Engine::start(container), &[204, 304, 404, 409]).await?;
        if matches!(status.as_u16(), 204 | 304) {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
    Err(unreachable("the container does not start"))
}

async fn destroy(engine: &Engine, container: &str) -> Outcome<()> {
    ask(engine, Engine::destroy(container), &[204, 200, 404, 409]).await.map(|_| ())
}

async fn renew(engine: &Engine, container: &str, seconds: u64) -> Outcome<()> {
    let ran = quickly(engine, container, Task::Renew(seconds)).await?;
    if ran.exit_code == Some(0) {
        return Ok(());
    }
    Err(unreachable(&format!("the image lacks what a container needs: {}", ran.stderr)))
}

/// What takes no time to speak of.
async fn quickly(engine: &Engine, container: &str, task: Task<'_>) -> Outcome<Ran> {
    let (id, mut streams) = (made(engine, container, task).await?, Streams::keeping(300));
    let code = follow(engine, &id, &mut streams, Instant::now() + PATIENCE).await?;
    let (stdout, stderr) = streams.texts(300);
    Ok(Ran { stdout, stderr, exit_code: code })
}

/// Runs a command of a model's until it ends or its time is over.
async fn run(
    engine: &Arc<Engine>,
    container: &str,
    (command, in_shell): (&str, bool),
    (until, most): (Instant, usize),
) -> Outcome<Ran> {
    if command.len() > LONGEST_COMMAND || command.contains('\0') {
        let stderr = format!("A command has at most {LONGEST_COMMAND} bytes and no NUL.");
        return Ok(Ran { stdout: String::new(), stderr, exit_code: Some(NOT_RUN) });
    }
    let name = RequestId::new().as_str().to_owned();
    let task = match in_shell {
        true => Task::Shell { name: &name, command },
        false => Task::Process { name: &name, command },
    };
    let id = made(engine, container, task).await?;
    let mut running =
        Running { engine: engine.clone(), container: container.to_owned(), name: name.clone(), id: Some(id.clone()) };
    let mut streams = Streams::keeping(most);
    let mut code = follow(engine, &id, &mut streams, until).await?;
    match code {
        Some(_) => running.id = None,
        None => running.end().await,
    }
    if code.is_none() && streams.seen() > MOST_SAID {
        code = Some(KILLED);
    }
    let (stdout, stderr) = streams.texts(most);
    Ok(Ran { stdout, stderr, exit_code: code })
}

async fn made(engine: &Engine, container: &str, task: Task<'_>) -> Outcome<String> {
    let (_, body) = ask(engine, Engine::exec(container, task), &[201, 200]).await?;
    id(&body).ok_or_else(|| unreachable("the engine does not say what a command is called"))
}

/// The code that it ended with; nothing when it still runs, because its time is over or it says too much.
async fn follow(engine: &Engine, id: &str, streams: &mut Streams, until: Instant) -> Outcome<Option<i64>> {
    let answer = send(engine, Engine::begin(id)).await?;
    if !answer.status().is_success() {
        return Err(refused(answer).await);
    }
    let mut body = answer.into_body();
    loop {
        tokio::select! {
            frame = body.frame() => match frame.and_then(Result::ok) {
                Some(frame) => frame.data_ref().into_iter().for_each(|bytes| streams.push(bytes)),
                None => break,
            },
            () = sleep_until(until) => return Ok(None),
            () = sleep(QUIET) => if let Some(code) = code(engine, id).await? {
                return Ok(Some(code));
            },
        }
        if streams.seen() > MOST_SAID {
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

async fn code(engine: &Engine, id: &str) -> Outcome<Option<i64>> {
    let (_, body) = ask(engine, Engine::inspect(id), &[200]).await?;
    state(&body).ok_or_else(|| unreachable("the engine does not say what became of a command"))
}

/// A command that runs. Whoever leaves takes it along.
struct Running {
    engine: Arc<Engine>,
    container: String,
    name: String,
    /// None: it ended.
    id: Option<String>,
}

impl Running {
    /// Ends it; where that cannot be done, the container with it.
    async fn end(&mut self) {
        let Some(id) = self.id.take() else { return };
        end(&self.engine, &self.container, &self.name, &id).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let (engine, container, name) =
            (self.engine.clone(), std::mem::take(&mut self.container), std::mem::take(&mut self.name));
        tasks::spawn("sandbox.end", async move { end(&engine, &container, &name, &id).await });
    }
}

async fn end(engine: &Engine, container: &str, name: &str, id: &str) {
    let gone = async {
        quickly(engine, container, Task::End { name }).await?;
        while code(engine, id).await?.is_none() {
            sleep(PAUSE).await;
        }
        Ok::<_, &'static str>(())
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

#[expect(clippy::disallowed_methods, reason = "a socket of the operator's, which no address of a caller's leads to")]
async fn send(engine: &Engine, Call(method, path, body): Call) -> Outcome<Response<Incoming>> {
    let broken = |problem: &dyn std::fmt::Display| {
        unreachable(&format!("the engine at {} cannot be reached: {problem}", engine.socket.display()))
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
