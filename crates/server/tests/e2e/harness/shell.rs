//! Commands at a shell, and what they say.

use std::process::{Output, Stdio};

use tokio::io::AsyncWriteExt as _;

use super::gate::Place;
use super::soon;

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The outcome of a command that must succeed.
pub async fn ran(place: &Place, words: &[&str]) -> (String, String) {
    let output = place.run(words).await;
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{words:?}: {out}{error}");
    (out, error)
}

/// A command that is given `input`.
pub async fn fed(place: &Place, words: &[&str], input: &str) -> Output {
    let mut child = place
        .prepared(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut pipe = child.stdin.take().expect("piped");
    pipe.write_all(input.as_bytes()).await.expect("it reads");
    drop(pipe);
    soon("a command", child.wait_with_output()).await.expect("it ends")
}
