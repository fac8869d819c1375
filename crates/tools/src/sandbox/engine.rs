//! Containers of Docker or Podman, by the API that both have on a socket: what is asked of it and what its answers hold.
//!
//! A container keeps itself: its first process, which commands of models cannot touch, ends it when nothing was run for so
//! long, so that none is left behind by a gateway that ended.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CPUS, MEMORY_BYTES, PROCESSES, cut};

/// What containers are found by.
const LABEL: &str = "tidegate.sandbox";
/// Whom commands run as. Nobody has this number in an image, and it owns nothing there.
const USER: &str = "65534:65534";
const WORK: &str = "/work";
/// Files live in memory, and share its limit with the processes.
const WORK_BYTES: u64 = 640 << 20;
const TEMPORARY_BYTES: u64 = 128 << 20;
/// A page for each call that runs.
const CALLS_BYTES: u64 = 4 << 20;
const OPEN_FILES: u32 = 1024;
/// Of what one argument of a program can hold, in Linux.
pub const LONGEST_COMMAND: usize = (128 << 10) - 1;

/// The first process. `$1`: the seconds it waits for the first command. Every call that runs has a file that says until when
/// at most; one more says it of the time without calls.
const KEEP: &str = r#"cd /run/tidegate
echo $(( $(date +%s) + $1 )) > until
while sleep 2; do
  now=$(date +%s) awake=
  for one in until*; do [ "$(cat "$one" 2> /dev/null || echo 0)" -gt "$now" ] && awake=1; done
  [ "$awake" ] || exit 0
done"#;
/// By root: the call `$1` may need it for `$2` seconds from now. Where the image has these folders they are as they are
/// there.
const AWAKE: &str = r#"chmod 1777 /work /tmp
echo $(( $(date +%s) + $2 )) > "/run/tidegate/new.$1" && mv -f "/run/tidegate/new.$1" "/run/tidegate/until.$1""#;
/// By root: the call `$1` is over; without another one it has `$2` seconds from now.
const REST: &str = r#"echo $(( $(date +%s) + $2 )) > "/run/tidegate/new.$1" && mv -f "/run/tidegate/new.$1" /run/tidegate/until
rm -f "/run/tidegate/until.$1""#;
/// A command as a process of its own. `$1`: what it is ended by, `$2`: the command. One that was ended before it began finds
/// its file there.
const PROCESS: &str = r#"set -C; { echo $$ > "/tmp/.tidegate-$1"; } 2> /dev/null || exit 137
exec sh -c "$2""#;
/// A command in the shell that keeps what it leaves behind: in bash variables, functions and options, elsewhere what is
/// exported; in both the directory. `$3` and `$4`: how each of them does it. Whoever comes meanwhile waits: the lock names
/// its holder, so that one who was killed holds nobody up.
const SHELL: &str = r#"set -C; { echo $$ > "/tmp/.tidegate-$1"; } 2> /dev/null || exit 137
set +C
until ln -s $$ /tmp/.tidegate-lock 2> /dev/null; do
  kill -0 "$(readlink /tmp/.tidegate-lock)" 2> /dev/null || rm -f /tmp/.tidegate-lock
  sleep 0.1 2> /dev/null || sleep 1
done
if command -v bash > /dev/null 2>&1; then exec bash --noprofile --norc -c "$3" bash "$2"; fi
exec sh -c "$4" sh "$2""#;
/// It is kept twice: when the command is done, for commands that have a trap of their own, and at the exit of one that
/// leaves before that.
const IN_BASH: &str = r#"[ -f /tmp/.tidegate-shell ] && . /tmp/.tidegate-shell 2> /dev/null
__command=$1 __kept=; shift
__keep() { __options=$(set +o; shopt -p); set +euC
{ declare -p; declare -f; alias -p; printf "cd -- %q\n" "$PWD"; printf "%s\n" "$__options"; } > /tmp/.tidegate-new 2> /dev/null \
&& mv -f /tmp/.tidegate-new /tmp/.tidegate-shell; rm -f /tmp/.tidegate-lock; __kept=1; }
trap '[ "$__kept" ] || __keep' EXIT
eval "$__command"
__code=$?; __keep; exit $__code"#;
const IN_SH: &str = r#"[ -f /tmp/.tidegate-shell ] && . /tmp/.tidegate-shell 2> /dev/null
__command=$1 __kept=; shift
__keep() { set +euC; { export PWD; export -p; echo "cd \"\$PWD\""; } > /tmp/.tidegate-new 2> /dev/null \
&& mv -f /tmp/.tidegate-new /tmp/.tidegate-shell; rm -f /tmp/.tidegate-lock; __kept=1; }
trap '[ "$__kept" ] || __keep' EXIT
eval "$__command"
__code=$?; __keep; exit $__code"#;
/// Ends what was started under the name `$1`, with all that it started in turn, or sees to it that it will not start.
const END: &str = r#"set -C; { echo > "/tmp/.tidegate-$1"; } 2> /dev/null && exit 0
for try in 1 2 3 4 5; do
  group=$(cat "/tmp/.tidegate-$1"); [ "$group" ] && break
  sleep 0.1 2> /dev/null || sleep 1
done
kill -9 "-$group"; exit 0"#;

/// An engine that the operator runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    pub socket: PathBuf,
    pub image: String,
    /// What runs containers where it is not what the engine takes by itself, such as `runsc`.
    pub runtime: Option<String>,
    /// Containers at a time.
    pub most: usize,
}

/// What is asked of the engine: the method, the path and the body.
#[derive(Debug, PartialEq)]
pub struct Call(pub Method, pub String, pub Option<Value>);

/// What is run in a container.
#[derive(Clone, Copy, Debug)]
pub enum Task<'a> {
    /// A call of this name may need it for so many seconds from now.
    Awake {
        name: &'a str,
        seconds: u64,
    },
    /// That call is over; without another one it lives so many seconds from now.
    Rest {
        name: &'a str,
        seconds: u64,
    },
    Process {
        name: &'a str,
        command: &'a str,
    },
    Shell {
        name: &'a str,
        command: &'a str,
    },
    End {
        name: &'a str,
    },
}

impl Engine {
    /// All containers of ours; see [`containers`].
    pub fn list() -> Call {
        // {"label":["tidegate.sandbox"]}
        let filters = format!("%7B%22label%22%3A%5B%22{LABEL}%22%5D%7D");
        Call(Method::GET, format!("/containers/json?all=true&filters={filters}"), None)
    }

    pub fn create(&self, container: &str, seconds: u64) -> Call {
        let files = |bytes: u64, mode: &str, more: &str| format!("rw,nosuid,nodev,{more},size={bytes},mode={mode}");
        let limit = |name: &str, most: u64| json!({"Name": name, "Soft": most, "Hard": most});
        // The kernel may count those of all containers together, since they are one user's.
        let processes = u64::from(PROCESSES).saturating_mul(self.most as u64);
        let mut host = json!({
            "AutoRemove": true,
            "ReadonlyRootfs": true,
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "NanoCpus": u64::from(CPUS) * 1_000_000_000,
            "Memory": MEMORY_BYTES,
            "MemorySwap": MEMORY_BYTES,
            "PidsLimit": PROCESSES,
            "Ulimits": [limit("nofile", u64::from(OPEN_FILES)), limit("nproc", processes)],
            "Tmpfs": {
                WORK: files(WORK_BYTES, "1777", "exec"),
                "/tmp": files(TEMPORARY_BYTES, "1777", "exec"),
                "/run/tidegate": files(CALLS_BYTES, "0700", "noexec"),
            },
        });
        if let Some(runtime) = &self.runtime {
            host["Runtime"] = json!(runtime);
        }
        let body = json!({
            "Image": self.image,
            // Named: without one, some versions of Podman take that of the image.
            "Entrypoint": ["sh"],
            "Cmd": ["-c", KEEP, "sh", seconds.to_string()],
            "User": "0:0",
            "WorkingDir": WORK,
            "Env": [format!("HOME={WORK}")],
            "Labels": {LABEL: container},
            "HostConfig": host,
        });
        Call(Method::POST, format!("/containers/create?name={container}"), Some(body))
    }

    /// What the image says of itself; see [`volumes`].
    pub fn image(&self) -> Call {
        Call(Method::GET, format!("/images/{}/json", self.image), None)
    }

    pub fn start(container: &str) -> Call {
        Call(Method::POST, format!("/containers/{container}/start"), None)
    }

    /// Away with it and all that it holds.
    pub fn destroy(container: &str) -> Call {
        Call(Method::DELETE, format!("/containers/{container}?force=true&v=true"), None)
    }

    /// What is to be run there; its [`id`] is answered.
    pub fn exec(container: &str, task: Task<'_>) -> Call {
        let (user, command) = match task {
            Task::Awake { name, seconds } => ("0:0", json!(["sh", "-c", AWAKE, "sh", name, seconds.to_string()])),
            Task::Rest { name, seconds } => ("0:0", json!(["sh", "-c", REST, "sh", name, seconds.to_string()])),
            Task::Process { name, command } => (USER, json!(["sh", "-c", PROCESS, "sh", name, command])),
            Task::Shell { name, command } => (USER, json!(["sh", "-c", SHELL, "sh", name, command, IN_BASH, IN_SH])),
            Task::End { name } => (USER, json!(["sh", "-c", END, "sh", name])),
        };
        let body = json!({
            "AttachStdout": true,
            "AttachStderr": true,
            "User": user,
            "WorkingDir": WORK,
            "Cmd": command,
        });
        Call(Method::POST, format!("/containers/{container}/exec"), Some(body))
    }

    /// Runs it: what it says comes as [`Streams`].
    pub fn begin(id: &str) -> Call {
        Call(Method::POST, format!("/exec/{id}/start"), Some(json!({"Detach": false, "Tty": false})))
    }

    /// Whether it still runs; see [`state`].
    pub fn inspect(id: &str) -> Call {
        Call(Method::GET, format!("/exec/{id}/json"), None)
    }
}

/// The containers that there are, and whether each runs.
pub fn containers(body: &[u8]) -> Option<Vec<(String, bool)>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Container {
        names: Vec<String>,
        state: String,
    }
    let all: Vec<Container> = serde_json::from_slice(body).ok()?;
    let name = |names: Vec<String>| names.into_iter().next().unwrap_or_default().trim_start_matches('/').to_owned();
    Some(all.into_iter().map(|one| (name(one.names), one.state == "running")).collect())
}

/// The folders of an image for which the engine would take room of the host's, without a limit.
pub fn volumes(body: &[u8]) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Image {
        config: Option<Config>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Config {
        volumes: Option<BTreeMap<String, Value>>,
    }
    let image: Image = serde_json::from_slice(body).ok()?;
    let volumes = image.config.and_then(|config| config.volumes).unwrap_or_default();
    Some(volumes.into_keys().collect())
}

/// What it is called that is to be run.
pub fn id(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Made {
        #[serde(rename = "Id")]
        id: String,
    }
    let fits = |id: &String| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    serde_json::from_slice::<Made>(body).ok().map(|made| made.id).filter(fits)
}

/// What became of what was to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has not begun, as far as the engine says so.
    Made,
    Runs,
    /// With this code.
    Ended(i64),
}

pub fn state(body: &[u8]) -> Option<State> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Exec {
        running: bool,
        exit_code: Option<i64>,
    }
    let exec: Exec = serde_json::from_slice(body).ok()?;
    Some(match (exec.running, exec.exit_code) {
        (true, _) => State::Runs,
        (false, Some(code)) => State::Ended(code),
        (false, None) => State::Made,
    })
}

/// What the engine says when it refuses.
pub fn problem(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Problem {
        message: String,
    }
    let said = serde_json::from_slice::<Problem>(body).map(|problem| problem.message);
    cut(said.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned()), 300)
}

/// What a process says on both of its streams, which come in one: each piece behind eight bytes that say whose it is and how
/// long.
#[derive(Debug, Default)]
pub struct Streams {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Bytes that are kept of each.
    most: usize,
    head: Vec<u8>,
    /// What is to come of the piece that was begun.
    left: usize,
    /// All that came.
    seen: u64,
}

const HEAD: usize = 8;

impl Streams {
    /// So many characters of each are kept at least.
    pub fn keeping(characters: usize) -> Self {
        Self { most: characters.saturating_mul(4), ..Self::default() }
    }

    /// The same, but no more than so many bytes of both together.
    #[must_use]
    pub fn within(self, bytes: usize) -> Self {
        Self { most: self.most.min(bytes / 2), ..self }
    }

    pub fn push(&mut self, mut bytes: &[u8]) {
        self.seen += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.left == 0 {
                let (taken, rest) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
                self.head.extend_from_slice(taken);
                bytes = rest;
                let Ok([_, _, _, _, length @ ..]) = <[u8; HEAD]>::try_from(&*self.head) else { continue };
                self.left = u32::from_be_bytes(length) as usize;
                if self.left == 0 {
                    self.head.clear();
                }
                continue;
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(self.left));
            let kept = if self.head[0] == 2 { &mut self.stderr } else { &mut self.stdout };
            kept.extend_from_slice(&piece[..piece.len().min(self.most.saturating_sub(kept.len()))]);
            self.left -= piece.len();
            bytes = rest;
            if self.left == 0 {
                self.head.clear();
            }
        }
    }

    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Both as text.
    pub fn texts(&self, most: usize) -> (String, String) {
        let text = |bytes: &[u8]| cut(String::from_utf8_lossy(bytes).into_owned(), most);
        (text(&self.stdout), text(&self.stderr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(kind: u8, text: &str) -> Vec<u8> {
        let mut piece = vec![kind, 0, 0, 0];
        piece.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
        piece.extend_from_slice(text.as_bytes());
        piece
    }

    #[test]
    fn streams_are_told_apart_however_they_are_cut() {
        let all = [piece(1, "si"), piece(2, "oh"), piece(1, ""), piece(1, "x \u{00e9}"), piece(2, "!")].concat();
        for size in 1..=all.len() {
            let mut streams = Streams::keeping(100);
            all.chunks(size).for_each(|chunk| streams.push(chunk));
            assert_eq!(streams.texts(100), ("six \u{00e9}".to_owned(), "oh!".to_owned()), "{size}");
            assert_eq!(streams.seen(), all.len() as u64);
            assert_eq!(streams.texts(2), ("si".to_owned(), "oh".to_owned()));
        }
        let mut streams = Streams::keeping(1);
        streams.push(&piece(1, &"x".repeat(1 << 20)));
        assert_eq!((streams.stdout.len(), streams.texts(1).0), (4, "x".to_owned()));
    }

    #[test]
    fn answers_of_both_engines_are_read() {
        let docker = json!([{"Names": ["/tg-a"], "State": "running"}, {"Names": ["/tg-b"], "State": "exited"}]);
        let all = [("tg-a".to_owned(), true), ("tg-b".to_owned(), false)];
        assert_eq!(containers(docker.to_string().as_bytes()).unwrap(), all);
        assert_eq!(id(br#"{"Id":"4a77b15f"}"#).as_deref(), Some("4a77b15f"));
        assert_eq!((id(br#"{"Id":"../x"}"#), id(b"{}")), (None, None));
        assert_eq!(state(br#"{"Running":false,"ExitCode":3}"#), Some(State::Ended(3)));
        // Podman has 0 there and Docker null while it runs.
        assert_eq!(state(br#"{"Running":true,"ExitCode":0}"#), Some(State::Runs));
        assert_eq!(state(br#"{"Running":true,"ExitCode":null}"#), Some(State::Runs));
        assert_eq!(state(br#"{"Running":false,"ExitCode":null}"#), Some(State::Made));
        assert_eq!(volumes(br#"{"Config":{"Volumes":{"/var/lib/data":{}}}}"#), Some(vec!["/var/lib/data".to_owned()]));
        assert_eq!(volumes(br#"{"Config":{"Volumes":null}}"#), Some(Vec::new()));
        assert_eq!((volumes(br#"{"Config":{}}"#), volumes(b"x")), (Some(Vec::new()), None));
        assert_eq!(state(b"{}"), None);
        assert_eq!(problem(br#"{"message":"No such image: x"}"#), "No such image: x");
        assert_eq!(problem(b"oops"), "oops");
    }
}
