use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;
use tidegate_core::id;

use super::*;

/// A ring of one key that is good and known; only for tests.
const LINE: &str = "test zzbAgIeIRxobSdS1ItiXWxbzRHFRHyq4EXEqMSn7CUo=\n";

const PLACE: Binding = Binding {
    table: "byok_credentials",
    column: "secret",
    record: "0198",
    workspace: "ws-1",
    provider: "openai",
    destination: Some("https://api.openai.com:443"),
};

fn vault_of(lines: &str) -> Vault {
    let ring = MasterRing::parse(&Secret::new(lines), "test").unwrap();
    Vault::new(MasterKeySource::Environment("NOT_READ".to_owned()), ring)
}

/// A vault over a file, as after a first start.
async fn vault_in(folder: &TempDir) -> (Vault, std::path::PathBuf) {
    let path = folder.path().join("master.key");
    let source = MasterKeySource::File(path.clone());
    let ring = MasterRing::load_or_create(&source).await.unwrap();
    (Vault::new(source, ring), path)
}

fn opens_to(vault: &Vault, sealed: &Sealed, expected: &str) {
    vault.open(&PLACE, sealed).unwrap().expose(|secret| assert_eq!(secret, expected.as_bytes()));
}

#[test]
fn a_vault_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Vault>();
}

/// Sealed with another library (Python's `cryptography`) after the description of the format.
#[test]
fn sec_1_a_record_made_by_another_implementation_opens() {
    let vault = vault_of(LINE);
    let sealed = "1:test:2r+tHb7O8xo1FwnwWsh0tkD4AhZo8/CtltjBGxj1C228kaabeshfYXlds4nbFOKZQzkitoJGRTpb3omg\
        :HDFNt50gP1eCRom6SoSRpE0CWmwIKoGdF6YgVp70eFmbh461VXtxgOWVKVSyLTA3AxUMlA";
    opens_to(&vault, &Sealed::from_text(sealed).unwrap(), "sk-test-abcdefghijklmnop");

    let anywhere = "1:test:2r+tHb7O8xo1FwnwKtFQarPgiMyN6YSJ8Cks7wy0nvy8Gn3CAKmpfpBlBhGAjdIxdTASuRuwfPum4v79\
        :HDFNt50gP1eCRom6SoSRpE0CWmwIKoGdF6YgVp70eFmbh461ysMsfsO9W7eY4IRnGS/SsA";
    let anywhere = Sealed::from_text(anywhere).unwrap();
    assert!(matches!(vault.open(&PLACE, &anywhere), Err(VaultError::DoesNotOpen)));
    let place = Binding { destination: None, ..PLACE };
    assert!(vault.open(&place, &anywhere).unwrap().expose(|secret| secret == b"sk-test-abcdefghijklmnop"));
}

#[test]
fn sec_3_an_unknown_master_key_is_named() {
    let sealed = vault_of(LINE).seal(&PLACE, &Secret::new("x")).unwrap();
    let other = vault_of("other r4LV7YAm/mFsr4FPvfHyEoIO1zKiIMAhVhTbxZJ5R3s=");
    for error in [other.open(&PLACE, &sealed).err().unwrap(), other.rewrap(&PLACE, &sealed).unwrap_err()] {
        assert!(matches!(&error, VaultError::UnknownMasterKey(id) if &**id == "test"), "{error}");
        assert!(error.to_string().contains(r#""test""#), "{error}");
    }
    assert!(other.knows("other") && !other.knows("test"));
    assert_eq!((&*other.active_id(), other.ids()), ("other", vec!["other".into()]));
}

#[test]
fn sec_3_another_key_of_the_same_id_does_not_open() {
    let sealed = vault_of(LINE).seal(&PLACE, &Secret::new("x")).unwrap();
    let other = vault_of("test r4LV7YAm/mFsr4FPvfHyEoIO1zKiIMAhVhTbxZJ5R3s=");
    assert!(matches!(other.open(&PLACE, &sealed), Err(VaultError::DoesNotOpen)));
}

#[test]
fn a_record_of_another_format_is_refused_as_such() {
    let vault = vault_of(LINE);
    let mut sealed = vault.seal(&PLACE, &Secret::new("x")).unwrap();
    for version in [0, 2, -1] {
        sealed.version = version;
        // Of a format that is not known, the key may be unknown too; the format is what to complain of.
        sealed.master_key = "later".into();
        assert!(matches!(vault.open(&PLACE, &sealed), Err(VaultError::UnknownVersion(found)) if found == version));
        assert!(matches!(vault.rewrap(&PLACE, &sealed), Err(VaultError::UnknownVersion(_))));
    }
}

#[tokio::test]
async fn sec_5_a_rotation_wraps_again_and_leaves_the_ciphertext() {
    let folder = TempDir::new().unwrap();
    let (vault, path) = vault_in(&folder).await;
    let old = vault.active_id();
    let sealed = vault.seal(&PLACE, &Secret::new("sk-1")).unwrap();
    assert_eq!(vault.rewrap(&PLACE, &sealed).unwrap(), None);

    let new = add_active_key(&path).unwrap();
    assert!(vault.refresh().await.unwrap());
    assert_eq!(vault.ids(), [new.clone(), old.clone()]);
    opens_to(&vault, &sealed, "sk-1");
    let wrapped = vault.rewrap(&PLACE, &sealed).unwrap().unwrap();
    assert_eq!((&wrapped.master_key, wrapped.version), (&new, sealed.version));
    assert_eq!(wrapped.ciphertext, sealed.ciphertext);
    assert_ne!(wrapped.wrapped_key, sealed.wrapped_key);
    assert_eq!(vault.rewrap(&PLACE, &wrapped).unwrap(), None, "a second pass finds nothing to do");
    // Neither may a record be carried elsewhere by rewrapping it there.
    let elsewhere = Binding { workspace: "ws-2", ..PLACE };
    assert!(matches!(vault.rewrap(&elsewhere, &sealed), Err(VaultError::DoesNotOpen)));

    remove_keys(&path, &[&old]).unwrap();
    assert!(vault.refresh().await.unwrap());
    assert_eq!(vault.ids(), [new]);
    opens_to(&vault, &wrapped, "sk-1");
    assert!(matches!(vault.open(&PLACE, &sealed), Err(VaultError::UnknownMasterKey(id)) if id == old));
}

#[tokio::test]
async fn sec_5_a_look_at_the_file_notices_a_new_ring() {
    let folder = TempDir::new().unwrap();
    let (vault, path) = vault_in(&folder).await;
    for _ in 0..2 {
        assert!(!vault.refresh_if_changed().await.unwrap());
    }
    // What was read before the first look counts too.
    let late = Vault::new(MasterKeySource::File(path.clone()), MasterRing::parse(&Secret::new(LINE), "old").unwrap());
    assert!(late.refresh_if_changed().await.unwrap());

    let new = add_active_key(&path).unwrap();
    assert!(vault.refresh_if_changed().await.unwrap());
    assert_eq!(vault.active_id(), new);
    assert!(!vault.refresh_if_changed().await.unwrap());
    assert!(!vault.refresh().await.unwrap(), "it was read already");
}

#[tokio::test]
async fn sec_5_a_ring_that_cannot_be_read_leaves_the_one_at_hand() {
    let folder = TempDir::new().unwrap();
    let (vault, path) = vault_in(&folder).await;
    assert!(!vault.refresh_if_changed().await.unwrap());
    let sealed = vault.seal(&PLACE, &Secret::new("sk-1")).unwrap();

    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    for _ in 0..2 {
        let error = vault.refresh_if_changed().await.unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(vault.refresh_if_changed().await.is_err() && vault.refresh().await.is_err());
    opens_to(&vault, &sealed, "sk-1");
}

#[tokio::test]
async fn other_sources_are_read_again_only_when_asked_to() {
    let words = ["printf", "%s", LINE].map(str::to_owned).to_vec();
    let ring = MasterRing::parse(&Secret::new("old r4LV7YAm/mFsr4FPvfHyEoIO1zKiIMAhVhTbxZJ5R3s="), "old").unwrap();
    let vault = Vault::new(MasterKeySource::Command(words), ring);
    assert!(!vault.refresh_if_changed().await.unwrap());
    assert_eq!(&*vault.active_id(), "old");
    assert!(vault.refresh().await.unwrap() && !vault.refresh().await.unwrap());
    assert_eq!(&*vault.active_id(), "test");
}

/// The expected value is of Python's `hmac` and `cryptography`, after RFC 5869 and RFC 2104.
#[test]
fn a_signature_is_hmac_under_a_key_derived_for_its_label() {
    let tag: String = vault_of(LINE).sign("session", b"user=1").iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(tag, "1b956c4d129e0223cc9d3eb3e7e4d7b59e1c1081463080ec665c861c01fae59f");
}

#[tokio::test]
async fn a_blob_opens_for_its_label_and_its_subject_until_its_key_leaves_the_ring() {
    let folder = TempDir::new().unwrap();
    let (vault, path) = vault_in(&folder).await;
    let sealed = vault.seal_blob("result", b"workspace a", b"text").unwrap();
    let opens = |label: &str, about: &[u8], sealed: &[u8]| vault.open_blob(label, about, sealed);
    assert_eq!(opens("result", b"workspace a", &sealed).as_deref(), Some(&b"text"[..]));
    assert_ne!(sealed, vault.seal_blob("result", b"workspace a", b"text").unwrap());
    assert_eq!(opens("other", b"workspace a", &sealed), None);
    assert_eq!(opens("result", b"workspace b", &sealed), None);
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        assert_eq!(opens("result", b"workspace a", &changed), None, "{at}");
        assert_eq!(opens("result", b"workspace a", &sealed[..at]), None, "{at}");
    }
    let old = vault.active_id();
    add_active_key(&path).unwrap();
    assert!(vault.refresh().await.unwrap());
    assert_eq!(opens("result", b"workspace a", &sealed).as_deref(), Some(&b"text"[..]));
    remove_keys(&path, &[&old]).unwrap();
    assert!(vault.refresh().await.unwrap());
    assert_eq!(opens("result", b"workspace a", &sealed), None);
}

#[tokio::test]
async fn a_signature_holds_until_its_key_leaves_the_ring() {
    let folder = TempDir::new().unwrap();
    let (vault, path) = vault_in(&folder).await;
    let old = vault.active_id();
    let tag = vault.sign("session", b"user=1");
    assert!(vault.verify("session", b"user=1", &tag));
    assert!(!vault.verify("session", b"user=2", &tag) && !vault.verify("other", b"user=1", &tag));
    assert!(!vault.verify("session", b"user=1", &tag[..31]) && !vault.verify("session", b"user=1", &[]));
    assert!(!vault.verify("session", b"user=1", &[&tag[..], &[0]].concat()));
    for bit in 0..256 {
        let mut changed = tag;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(!vault.verify("session", b"user=1", &changed), "bit {bit}");
    }

    add_active_key(&path).unwrap();
    vault.refresh().await.unwrap();
    assert!(vault.verify("session", b"user=1", &tag));
    assert_ne!(vault.sign("session", b"user=1"), tag);
    remove_keys(&path, &[&old]).unwrap();
    vault.refresh().await.unwrap();
    assert!(!vault.verify("session", b"user=1", &tag));
}

#[tokio::test]
async fn sec_3_the_check_record_proves_the_ring() {
    let folder = TempDir::new().unwrap();
    let (vault, path) = vault_in(&folder).await;
    let check = Sealed::from_text(&vault.check().to_text()).unwrap();
    assert!(vault.is_ours(&check));
    assert!(!vault_of(LINE).is_ours(&check));
    let same_id = format!("{} r4LV7YAm/mFsr4FPvfHyEoIO1zKiIMAhVhTbxZJ5R3s=", vault.active_id());
    assert!(!vault_of(&same_id).is_ours(&check));
    let other_text = vault.seal(&CHECK, &Secret::new(id::random::<8>())).unwrap();
    assert!(!vault.is_ours(&other_text));

    let old = vault.active_id();
    add_active_key(&path).unwrap();
    vault.refresh().await.unwrap();
    let wrapped = vault.rewrap(&CHECK, &check).unwrap().unwrap();
    assert!(vault.is_ours(&check) && vault.is_ours(&wrapped));
    remove_keys(&path, &[&old]).unwrap();
    vault.refresh().await.unwrap();
    assert!(!vault.is_ours(&check) && vault.is_ours(&wrapped));
}
