//! What went wrong in other gateways is numbered, P01 to P89, and each number is the name of a test here: of a function
//! in Rust or Python (`p07_…`), or of a folder of the golden tests (`p07-…`). This one finds the numbers that are not.

#![expect(clippy::unwrap_used, reason = "a source that cannot be read is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LAST: u8 = 89;

/// The numbers in a name: `p01_p11_call_first` has two. In the name of a folder they stand at its start.
fn numbers(name: &str, is_folder: bool) -> Vec<u8> {
    let mut found = Vec::new();
    let mut parts = name.split(['_', '-']).peekable();
    while let Some(part) = parts.next() {
        let number = part.strip_prefix('p').filter(|digits| digits.len() == 2).and_then(|digits| digits.parse().ok());
        match number {
            // Something must follow: what is wrong is said in words.
            Some(number) if parts.peek().is_some() => found.push(number),
            _ if is_folder => break,
            _ => {}
        }
    }
    found
}

/// All files below a folder with this ending.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

/// Names of the tests of a Rust source: functions below an attribute that says so.
fn rust_tests(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim_start) {
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        } else if !line.starts_with("//") {
            let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            found.extend(name.filter(|_| is_test).and_then(|rest| rest.split('(').next()));
            is_test = false;
        }
    }
    found
}

fn python_tests(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| line.strip_prefix("def test_")?.split('(').next())
}

#[test]
fn every_known_pitfall_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut tested: BTreeSet<u8> = BTreeSet::new();
    let (mut rust, mut python) = (Vec::new(), Vec::new());
    files(&root.join("crates"), "rs", &mut rust);
    files(&root.join("tests/python"), "py", &mut python);
    for path in rust {
        tested.extend(rust_tests(&fs::read_to_string(path).unwrap()).into_iter().flat_map(|name| numbers(name, false)));
    }
    for path in python {
        tested.extend(python_tests(&fs::read_to_string(path).unwrap()).flat_map(|name| numbers(name, false)));
    }
    for protocol in fs::read_dir(root.join("crates/providers/tests/golden/cases")).unwrap() {
        for case in fs::read_dir(protocol.unwrap().path()).unwrap() {
            tested.extend(numbers(case.unwrap().file_name().to_str().unwrap(), true));
        }
    }
    let missing: Vec<String> =
        (1..=LAST).filter(|number| !tested.contains(number)).map(|number| format!("P{number:02}")).collect();
    assert!(missing.is_empty(), "no test is named after {}", missing.join(", "));
}

#[test]
fn numbers_are_read_from_names() {
    assert_eq!(numbers("p01_p11_call_first", false), [1, 11]);
    assert_eq!(numbers("str_3_p22_silence", false), [22]);
    assert_eq!(numbers("p05-p06-text", true), [5, 6]);
    assert_eq!(numbers("stream-p06-text", true), [] as [u8; 0]);
    assert_eq!(numbers("top100_up12", false), [] as [u8; 0]);
    assert_eq!(
        rust_tests("#[test]\nfn p01_x() {\nfn p02_helper() {\n#[tokio::test]\nasync fn p03_y() {"),
        ["p01_x", "p03_y"]
    );
    assert_eq!(python_tests("def test_p04_x(client):\ndef p05_y():").collect::<Vec<_>>(), ["p04_x"]);
}
