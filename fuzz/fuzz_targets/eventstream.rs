//! Any bytes in any division as Amazon's binary frames: never a panic, and the same events as of the undivided bytes.
//! Frames that we write are read back.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tidegate_providers::eventstream::{Event, Splitter, encode};

/// Events up to the end or to the first mistake, and whether there was one.
fn events(chunks: &[&[u8]]) -> (Vec<String>, bool) {
    let mut splitter = Splitter::new(1 << 16);
    let mut events = Vec::new();
    for chunk in chunks {
        splitter.feed(Bytes::copy_from_slice(chunk));
        loop {
            match splitter.next() {
                Ok(Some(event)) => events.push(format!("{event:?}")),
                Ok(None) => break,
                Err(_) => return (events, true),
            }
        }
    }
    (events, false)
}

fuzz_target!(|input: (Vec<u8>, Vec<u16>)| {
    let (bytes, cuts) = input;
    let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| usize::from(cut) % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
    assert_eq!(events(&chunks), events(&[&bytes]));
    let mut splitter = Splitter::new(usize::MAX);
    splitter.feed(encode("chunk", &bytes).into());
    match splitter.next() {
        Ok(Some(Event::Message { name, payload })) => assert_eq!((&*name, &*payload), ("chunk", &*bytes)),
        other => panic!("{other:?}"),
    }
});
