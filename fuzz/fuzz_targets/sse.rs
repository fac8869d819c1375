//! Any bytes in any division: the frames are the same as for the undivided bytes, and nothing is lost.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use memchr::memmem::Finder;
use tidegate_wire::sse::Splitter;

/// With `runs` the shortcuts are taken too, and what they give is read frame by frame behind a frame of its own.
fn events(chunks: &[&[u8]], runs: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut splitter = Splitter::new(1 << 20);
    let mut events = Vec::new();
    for chunk in chunks {
        splitter.feed(Bytes::copy_from_slice(chunk));
        if runs {
            let calm = splitter.calm(&[Finder::new("x")]);
            let run = splitter.run(|frame| !frame.contains(&b'y'));
            for piece in calm.into_iter().chain(run) {
                events.extend(self::events(&[b"\n", &piece], false).into_iter().skip(1));
            }
        }
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
    let whole = events(&[&bytes], false);
    assert_eq!(events(&chunks, false), whole);
    assert_eq!(events(&chunks, true), whole);
});
