use crate::run::{Case, all};

/// Every folder is tried; one without anything to try is a mistake.
#[test]
fn every_case_holds() {
    let cases = all();
    assert!(!cases.is_empty());
    let mut failures = Vec::new();
    for (protocol, path) in cases {
        let tried = std::panic::catch_unwind(|| Case::read(protocol, &path).check());
        match tried {
            Ok(0) => failures.push(format!("{}: nothing to try", path.display())),
            Ok(_) => {}
            Err(panic) => {
                let words = panic.downcast_ref::<String>().cloned();
                failures.push(words.unwrap_or_else(|| format!("{}: it panicked", path.display())));
            }
        }
    }
    assert!(failures.is_empty(), "{} cases fail\n\n{}", failures.len(), failures.join("\n\n"));
}
