use proptest::prelude::*;

use super::*;

const PLACE: Binding = Binding {
    table: "byok_credentials",
    column: "secret",
    record: "0198",
    workspace: "ws-1",
    provider: "openai",
    destination: Some("https://api.openai.com:443"),
};

fn master(id: &str) -> MasterKey {
    MasterKey { id: id.into(), key: Secret::new(id::random::<KEY_BYTES>()), blobs: Default::default() }
}

fn is_refused(master: &MasterKey, binding: &Binding, sealed: &Sealed) -> bool {
    matches!(open(master, binding, sealed), Err(VaultError::DoesNotOpen))
}

#[test]
fn sec_1_the_stored_parts_have_their_lengths() {
    let sealed = seal(&master("a"), &PLACE, &Secret::new("sk-0123456789")).unwrap();
    assert_eq!((sealed.version, &*sealed.master_key), (1, "a"));
    assert_eq!((sealed.wrapped_key.len(), sealed.ciphertext.len()), (12 + 32 + 16, 12 + 13 + 16));
    let shown = format!("{sealed:?}");
    assert_eq!(shown, r#"Sealed { version: 1, master_key: "a", wrapped_key_bytes: 60, ciphertext_bytes: 41 }"#);
}

#[test]
fn sec_1_two_seals_of_one_secret_have_nothing_in_common() {
    let (master, secret) = (master("a"), Secret::new([7; 64]));
    let (one, two) = (seal(&master, &PLACE, &secret).unwrap(), seal(&master, &PLACE, &secret).unwrap());
    // Two random texts agree in every 256th byte; that 16 of at most 92 do is not going to happen.
    let common = |one: &[u8], two: &[u8]| one.iter().zip(two).filter(|(one, two)| one == two).count();
    assert!(common(&one.wrapped_key, &two.wrapped_key) < 16);
    assert!(common(&one.ciphertext, &two.ciphertext) < 16);
    assert_ne!(one.wrapped_key[..NONCE_LEN], two.wrapped_key[..NONCE_LEN]);
    assert_ne!(one.ciphertext[..NONCE_LEN], two.ciphertext[..NONCE_LEN]);
    let data_keys = [&one, &two].map(|sealed| unwrap(&master, &PLACE, sealed).unwrap());
    data_keys[0].expose(|one| data_keys[1].expose(|two| assert!(common(one, two) < 16)));
}

#[test]
fn sec_2_a_changed_bit_or_length_does_not_open() {
    let master = master("a");
    let good = seal(&master, &PLACE, &Secret::new("sk-0123456789")).unwrap();
    let parts: [fn(&mut Sealed) -> &mut Vec<u8>; 2] =
        [|sealed| &mut sealed.wrapped_key, |sealed| &mut sealed.ciphertext];
    for part in parts {
        let mut sealed = good.clone();
        let length = part(&mut sealed).len();
        for bit in 0..length * 8 {
            part(&mut sealed)[bit / 8] ^= 1 << (bit % 8);
            assert!(is_refused(&master, &PLACE, &sealed), "bit {bit}");
            part(&mut sealed)[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(sealed, good);
        for kept in 0..length {
            let (mut head, mut tail) = (good.clone(), good.clone());
            part(&mut head).truncate(kept);
            part(&mut tail).drain(..length - kept);
            assert!(is_refused(&master, &PLACE, &head) && is_refused(&master, &PLACE, &tail), "{kept} bytes");
        }
        part(&mut sealed).push(0);
        assert!(is_refused(&master, &PLACE, &sealed));
    }
    assert!(open(&master, &PLACE, &good).is_ok());
}

#[test]
fn sec_2_a_secret_moved_to_another_row_does_not_open() {
    let master = master("a");
    let sealed = seal(&master, &PLACE, &Secret::new("sk-1")).unwrap();
    let elsewhere = [
        Binding { table: "destinations", ..PLACE },
        Binding { column: "headers", ..PLACE },
        Binding { record: "0199", ..PLACE },
        Binding { workspace: "ws-2", ..PLACE },
        Binding { provider: "anthropic", ..PLACE },
        Binding { destination: Some("https://api.openai.com:8443"), ..PLACE },
        Binding { destination: Some(""), ..PLACE },
        Binding { destination: None, ..PLACE },
        // The same letters with the border between two members elsewhere.
        Binding { table: "byok_credentialss", column: "ecret", ..PLACE },
        Binding { workspace: "ws-1openai", provider: "", ..PLACE },
        Binding { record: PLACE.workspace, workspace: PLACE.record, ..PLACE },
    ];
    for binding in &elsewhere {
        assert!(is_refused(&master, binding, &sealed), "{binding:?}");
        let there = seal(&master, binding, &Secret::new("sk-2")).unwrap();
        // Nor do the halves of two records make a third.
        let mixed = [
            Sealed { ciphertext: there.ciphertext.clone(), ..sealed.clone() },
            Sealed { wrapped_key: there.wrapped_key.clone(), ..sealed.clone() },
        ];
        assert!(mixed.iter().all(|mixed| is_refused(&master, &PLACE, mixed) && is_refused(&master, binding, mixed)));
    }
}

#[test]
fn sec_2_an_absent_destination_is_not_an_empty_one() {
    let master = master("a");
    let anywhere = seal(&master, &Binding { destination: None, ..PLACE }, &Secret::new("sk-1")).unwrap();
    assert!(is_refused(&master, &Binding { destination: Some(""), ..PLACE }, &anywhere));
}

#[test]
fn sec_2_the_master_key_is_bound_by_its_id() {
    let one = master("a");
    let same =
        MasterKey { id: "b".into(), key: Secret::new(one.key.expose(<[u8]>::to_vec)), blobs: Default::default() };
    let sealed = seal(&one, &PLACE, &Secret::new("sk-1")).unwrap();
    assert!(is_refused(&same, &PLACE, &sealed));
}

#[test]
fn sec_5_rewrapping_does_not_need_the_secret_to_be_whole() {
    let (old, new) = (master("a"), master("b"));
    let mut sealed = seal(&old, &PLACE, &Secret::new("sk-1")).unwrap();
    let whole = rewrap(&old, &new, &PLACE, &sealed).unwrap();
    assert!(open(&new, &PLACE, &whole).unwrap().expose(|secret| secret == b"sk-1"));
    // It could not succeed here if it decrypted the secret.
    sealed.ciphertext.clear();
    assert!(rewrap(&old, &new, &PLACE, &sealed).is_ok());
}

#[test]
fn what_is_no_sealed_text_is_refused() {
    let text = seal(&master("a"), &PLACE, &Secret::new("sk-1")).unwrap().to_text();
    let cases = [
        "",
        ":::",
        "1:a",
        "1:a:AAAA",
        "x:a:AAAA:AAAA",
        "1:a:AAAA:AAAA:AAAA",
        "1:a:AAAA:A",
        "1:a:AA==:AAAA",
        "1:a:?:AAAA",
    ];
    for case in cases.map(str::to_owned).into_iter().chain([format!("{text}\n"), format!("{text}:")]) {
        assert_eq!(Sealed::from_text(&case), None, "{case}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn sec_1_what_was_sealed_opens_to_the_same(
        secret in prop::collection::vec(any::<u8>(), 0..3000),
        names in prop::array::uniform5(".{0,12}"),
        destination in prop::option::of(".{0,12}"),
    ) {
        let [table, column, record, workspace, provider] = &names;
        let binding = Binding { table, column, record, workspace, provider, destination: destination.as_deref() };
        let (old, new) = (master("a"), master("b"));
        let sealed = seal(&old, &binding, &Secret::new(secret.clone())).unwrap();
        prop_assert!(open(&old, &binding, &sealed).unwrap().expose(|opened| opened == secret));
        let stored = Sealed::from_text(&sealed.to_text()).unwrap();
        prop_assert_eq!(&stored, &sealed);
        let wrapped = rewrap(&old, &new, &binding, &stored).unwrap();
        prop_assert!(open(&new, &binding, &wrapped).unwrap().expose(|opened| opened == secret));
        prop_assert!(is_refused(&old, &binding, &wrapped));
    }

    #[test]
    fn sec_2_two_bindings_are_never_authenticated_alike(
        one in prop::array::uniform6("[ab]{0,3}"),
        two in prop::array::uniform6("[ab]{0,3}"),
    ) {
        let list = |names: &[String; 6]| {
            let [table, column, record, workspace, provider, destination] = names.each_ref().map(String::as_str);
            around_secret(&Binding { table, column, record, workspace, provider, destination: Some(destination) })
        };
        prop_assert_eq!(one == two, list(&one) == list(&two));
    }
}
