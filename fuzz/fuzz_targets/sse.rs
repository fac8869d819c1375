//! Any bytes in any division: the frames are the same as for the undivided bytes, and nothing is lost.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tidegate_wire::sse::Splitter;

fn events(chunks: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut splitter = Splitter::new(1 << 20);
    let mut events = Vec::new();
    for chunk in chunks {
        splitter.feed(Bytes::copy_from_slice(chunk));
        while let Some(frame) = splitter.next().expect("the input is below the limit") {
            events.push((frame.event().to_vec(), frame.data().into_owned()));
        }
    }
    events.extend(splitter.finish().map(|frame| (frame.event().to_vec(), frame.data().into_owned())));
    events
}

fuzz_target!(|input: (Vec<u8>, Vec<u16>)| {
    let (bytes, cuts) = input;
    let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| usize::from(cut) % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let mut chunks = Vec::new();
    let mut from = 0;
    for cut in cuts {
        chunks.push(&bytes[from..cut]);
        from = cut;
    }
    chunks.push(&bytes[from..]);
    assert_eq!(events(&chunks), events(&[&bytes]));
});
