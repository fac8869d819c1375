use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use std::io::Write;

use tempfile::TempDir;
use tidegate_store::vault::{MasterKeySource, MasterRing};

/// A ring of one key that is good and known; only for tests.
const LINE: &str = "test zzbAgIeIRxobSdS1ItiXWxbzRHFRHyq4EXEqMSn7CUo=\n";

fn write(path: &Path, mode: u32, text: &str) {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
}

fn command(words: &[&str]) -> MasterKeySource {
    MasterKeySource::Command(words.iter().map(ToString::to_string).collect())
}

async fn refusal(source: &MasterKeySource) -> String {
    let text = MasterRing::load(source).await.unwrap_err().to_string();
    assert!(!text.contains('\n') && !text.contains("zzbAgIeI"), "{text}");
    text
}

#[tokio::test]
async fn sec_3_a_file_is_made_on_the_first_start_for_its_owner_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("master.key");
    let source = MasterKeySource::File(path.clone());
    let error = refusal(&source).await;
    assert!(error.contains("there is no such file"), "{error}");
    assert!(!path.exists(), "only the first start makes a file");

    let made = MasterRing::load_or_create(&source).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for again in [MasterRing::load(&source).await.unwrap(), MasterRing::load_or_create(&source).await.unwrap()] {
        assert_eq!(again.active().id, made.active().id);
        assert!(again.active().key.expose(|one| made.active().key.expose(|other| one == other && one.len() == 32)));
    }
}

#[tokio::test]
async fn sec_3_a_file_that_others_may_read_is_refused() {
    let folder = TempDir::new().unwrap();
    for (mode, accepted) in
        [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o660, false), (0o644, false)]
    {
        let path = folder.path().join(format!("{mode:o}"));
        write(&path, mode, LINE);
        let source = MasterKeySource::File(path);
        if accepted {
            assert_eq!(&*MasterRing::load(&source).await.unwrap().active().id, "test");
        } else {
            let error = refusal(&source).await;
            assert!(error.contains("chmod 600") && error.contains(&format!("{mode:o}")), "{error}");
            assert!(MasterRing::load_or_create(&source).await.is_err());
        }
    }
}

#[tokio::test]
async fn sec_3_an_empty_or_huge_file_is_no_ring() {
    let folder = TempDir::new().unwrap();
    let (empty, huge) = (folder.path().join("empty"), folder.path().join("huge"));
    write(&empty, 0o600, "");
    write(&huge, 0o600, &LINE.repeat(2_000));
    assert!(refusal(&MasterKeySource::File(empty)).await.contains("holds no key"));
    assert!(refusal(&MasterKeySource::File(huge)).await.contains("longer than 64 KiB"));
}

#[tokio::test]
async fn sec_3_a_command_is_run_without_a_shell() {
    let ring = MasterRing::load(&command(&["printf", "%s", LINE])).await.unwrap();
    assert_eq!(&*ring.active().id, "test");
    let error = refusal(&command(&["echo", "$HOME; printf x"])).await;
    assert!(error.contains("line 1"), "{error}");
}

#[tokio::test]
async fn sec_3_a_command_that_fails_is_refused() {
    let error = refusal(&command(&["sh", "-c", "printf '%s' \"$1\"; exit 3", "sh", LINE])).await;
    assert!(error.contains(r#"cmd:["sh"]"#) && error.contains("exit status: 3"), "{error}");
    assert!(refusal(&command(&["/nonexistent/program"])).await.contains("cannot start the program"));
    assert!(refusal(&command(&["yes", "test"])).await.contains("the program failed"));
}

#[tokio::test(start_paused = true)]
async fn sec_3_a_command_that_hangs_is_given_up() {
    let error = refusal(&command(&["sleep", "1000"])).await;
    assert!(error.contains("did not finish within 10 seconds"), "{error}");
}

#[tokio::test]
async fn sec_3_a_variable_that_is_not_set_is_refused() {
    let error = refusal(&MasterKeySource::Environment("TIDEGATE_NO_SUCH_VARIABLE".to_owned())).await;
    assert_eq!(error, "secrets.master_key: env:TIDEGATE_NO_SUCH_VARIABLE: the variable is not set");
}
