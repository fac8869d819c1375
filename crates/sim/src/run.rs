//! The server as a command: options to a script, and one line that says where it listens.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::script::{Behaviour, Script, TokenShape};
use crate::server::Sim;

/// The options of `tidegate sim`. Of `status`, `tokens` and `text` the first one given decides.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub listen: SocketAddr,
    pub pace_ms: u64,
    pub first_byte_ms: u64,
    /// Always answers with this text.
    pub text: Option<String>,
    /// Always answers with a stream of this shape; `TokenShape` parses `COUNTxBYTES`.
    pub tokens: Option<TokenShape>,
    /// Always answers with this error.
    pub status: Option<u16>,
    pub record: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            pace_ms: 0,
            first_byte_ms: 0,
            text: None,
            tokens: None,
            status: None,
            record: true,
        }
    }
}

impl From<RunOptions> for Script {
    fn from(options: RunOptions) -> Self {
        let behaviour = match (options.status, options.tokens, options.text) {
            (Some(code), _, _) => Behaviour::status(code),
            (None, Some(TokenShape { count, bytes }), _) => Behaviour::Tokens { count, bytes },
            (None, None, Some(text)) => Behaviour::Says(text),
            (None, None, None) => Behaviour::Echo,
        };
        Script::from(behaviour)
            .pace(Duration::from_millis(options.pace_ms))
            .first_byte(Duration::from_millis(options.first_byte_ms))
            .record(options.record)
    }
}

/// Listens, prints `listening on http://ADDR`, and serves until the caller drops it.
pub async fn run(options: RunOptions) -> io::Result<()> {
    let sim = Sim::bind(options.listen, options).await?;
    announce(&sim)?;
    sim.closed().await;
    Ok(())
}

fn announce(sim: &Sim) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "listening on {}", sim.base_url())?;
    // Whoever started us waits for the line, and the end of a line does not flush a pipe.
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_option_given_decides() {
        let script = |options: RunOptions| Script::from(options).behaviour;
        let mut options = RunOptions::default();
        assert_eq!(script(options.clone()), Behaviour::Echo);
        options.text = Some("hello".into());
        assert_eq!(script(options.clone()), Behaviour::says("hello"));
        options.tokens = Some(TokenShape { count: 2, bytes: 3 });
        let tokens = Behaviour::Tokens { count: 2, bytes: 3 };
        assert_eq!(script(options.clone()), tokens);
        options.status = Some(503);
        assert_eq!(script(options), Behaviour::status(503));
    }

    #[test]
    fn it_can_run_as_a_task() {
        fn is_send(_: impl Send) {}
        is_send(run(RunOptions::default()));
    }
}
