use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

const FIRST: &str = "test zzbAgIeIRxobSdS1ItiXWxbzRHFRHyq4EXEqMSn7CUo=";
const SECOND: &str = "older r4LV7YAm/mFsr4FPvfHyEoIO1zKiIMAhVhTbxZJ5R3s=";

fn ring_in(folder: &TempDir, mode: u32, text: &str) -> PathBuf {
    let path = folder.path().join("master.key");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    path
}

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o777
}

fn files_in(folder: &TempDir) -> usize {
    std::fs::read_dir(folder.path()).unwrap().count()
}

#[test]
fn sec_5_a_new_key_comes_first_and_all_else_stays() {
    let folder = TempDir::new().unwrap();
    let old = format!("# made in spring\r\n\n{FIRST}\n\t{SECOND}");
    let path = ring_in(&folder, 0o400, &old);
    let name = add_active_key(&path).unwrap();
    let text = text_of(&path);
    let (line, rest) = text.split_once('\n').unwrap();
    assert_eq!(rest, old);
    let (id, key) = line.split_once(' ').unwrap();
    assert_eq!((id, STANDARD.decode(key).unwrap().len()), (&*name, 32));
    assert_eq!((mode_of(&path), files_in(&folder)), (0o600, 1));

    let second = add_active_key(&path).unwrap();
    assert_ne!(name, second);
    assert_eq!(text_of(&path).split_once('\n').unwrap().1, text);
}

#[test]
fn sec_5_keys_are_removed_but_never_the_active_one() {
    let folder = TempDir::new().unwrap();
    let path = ring_in(&folder, 0o600, &format!("# older goes soon\n{FIRST}\n  {SECOND}\r\n# older is gone\n"));
    for ids in [&["test"][..], &["older", "test"]] {
        let error = remove_keys(&path, ids).unwrap_err().to_string();
        assert!(error.contains("test") && error.contains("active") && !error.contains("zzbAgIeI"), "{error}");
    }
    let before = std::fs::metadata(&path).unwrap().ino();
    remove_keys(&path, &[]).unwrap();
    remove_keys(&path, &["no-such-key", "#", ""]).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), before, "nothing to do, nothing written");

    for _ in 0..2 {
        remove_keys(&path, &["older"]).unwrap();
        assert_eq!(text_of(&path), format!("# older goes soon\n{FIRST}\n# older is gone\n"));
    }
    assert_eq!((mode_of(&path), files_in(&folder)), (0o600, 1));
}

#[test]
fn sec_3_a_file_that_would_be_refused_at_start_is_not_rewritten() {
    let folder = TempDir::new().unwrap();
    let full = format!("{FIRST}\n#{}", "x".repeat(64 * 1024 - FIRST.len() - 2));
    let cases = [
        (0o640, FIRST, "chmod 600"),
        (0o604, FIRST, "chmod 600"),
        (0o600, "", "holds no key"),
        (0o600, "test AAAA\n", "line 1"),
        (0o600, &full, "longer than 64 KiB"),
    ];
    for (mode, text, expected) in cases {
        let path = ring_in(&folder, mode, text);
        let error = add_active_key(&path).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        assert_eq!((text_of(&path).as_str(), mode_of(&path), files_in(&folder)), (text, mode, 1));
    }
    let missing = folder.path().join("missing");
    assert!(add_active_key(&missing).unwrap_err().to_string().contains("cannot read the file"));
    assert!(remove_keys(&missing, &["test"]).is_err() && !missing.exists());
}

#[test]
fn sec_5_what_a_killed_rotation_left_is_cleared_away() {
    let folder = TempDir::new().unwrap();
    let path = ring_in(&folder, 0o600, FIRST);
    std::fs::write(folder.path().join("master.key.new"), "half a ri").unwrap();
    add_active_key(&path).unwrap();
    assert!(text_of(&path).ends_with(FIRST));
    assert_eq!((mode_of(&path), files_in(&folder)), (0o600, 1));
}

#[test]
fn sec_5_a_rotation_that_cannot_write_leaves_the_old_ring() {
    let folder = TempDir::new().unwrap();
    let path = ring_in(&folder, 0o600, FIRST);
    std::fs::create_dir(folder.path().join("master.key.new")).unwrap();
    let error = add_active_key(&path).unwrap_err().to_string();
    assert!(error.contains("cannot rewrite the file"), "{error}");
    assert_eq!(text_of(&path), FIRST);
}

#[test]
fn sec_5_a_linked_ring_is_changed_where_it_is() {
    let (folder, links) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = ring_in(&folder, 0o600, FIRST);
    let link = links.path().join("ring");
    symlink(&path, &link).unwrap();
    let name = add_active_key(&link).unwrap();
    assert!(link.is_symlink() && text_of(&path).starts_with(&*name));
}

#[test]
fn sec_5_rotations_at_the_same_time_lose_no_key() {
    let folder = TempDir::new().unwrap();
    let path = ring_in(&folder, 0o600, FIRST);
    let mut made: Vec<Box<str>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..8).map(|_| scope.spawn(|| add_active_key(&path).unwrap())).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let ring = MasterRing::parse(&Secret::new(text_of(&path)), "test").unwrap();
    made.push("test".into());
    made.sort_unstable();
    let mut found: Vec<&str> = ring.ids().collect();
    found.sort_unstable();
    assert_eq!(found, made.iter().map(|id| &**id).collect::<Vec<_>>());
}
