use proptest::prelude::*;

use super::*;

type Event = (Vec<u8>, Vec<u8>);

/// What a reader sees of a stream that arrives in these chunks.
fn events(chunks: &[&[u8]]) -> Vec<Event> {
    let mut splitter = Splitter::new(1 << 20);
    let mut events = Vec::new();
    let mut note = |frame: Frame| events.push((frame.event().to_vec(), frame.data().into_owned()));
    for chunk in chunks {
        splitter.feed(Bytes::copy_from_slice(chunk));
        while let Some(frame) = splitter.next().unwrap() {
            note(frame);
        }
    }
    splitter.finish().map(note);
    events
}

/// The bytes that are handed on of a stream that arrives in these chunks.
fn handed_on(chunks: &[&[u8]]) -> Vec<u8> {
    let mut splitter = Splitter::new(1 << 20);
    let mut bytes = Vec::new();
    for chunk in chunks {
        splitter.feed(Bytes::copy_from_slice(chunk));
        while let Some(frame) = splitter.next().unwrap() {
            bytes.extend_from_slice(&frame.0);
        }
    }
    bytes.extend(splitter.finish().into_iter().flat_map(|frame| frame.0));
    bytes
}

fn pairs(expected: &[(&str, &str)]) -> Vec<Event> {
    expected.iter().map(|(event, data)| (event.as_bytes().to_vec(), data.as_bytes().to_vec())).collect()
}

/// The same, with runs of some frames taken as one piece and cut again afterwards.
fn events_by_runs(chunks: &[&[u8]], wanted: impl Fn(&[u8]) -> bool + Copy) -> Vec<Event> {
    let mut splitter = Splitter::new(1 << 20);
    let mut all = Vec::new();
    for chunk in chunks {
        splitter.feed(Bytes::copy_from_slice(chunk));
        loop {
            if let Some(run) = splitter.calm(&[Finder::new("ping"), Finder::new("id")]) {
                all.extend(events(&[b"\n", &run]).into_iter().skip(1));
            }
            if let Some(run) = splitter.run(wanted) {
                // Behind a frame of its own, so that nothing in the run counts as the beginning of a stream.
                all.extend(events(&[b"\n", &run]).into_iter().skip(1));
            }
            let Some(frame) = splitter.next().unwrap() else { break };
            all.push((frame.event().to_vec(), frame.data().into_owned()));
        }
    }
    all.extend(splitter.finish().map(|frame| (frame.event().to_vec(), frame.data().into_owned())));
    all
}

const STREAM: &str = "event: message_start\ndata: {\"a\":\"é\"}\n\n: note\n\nevent:ping\ndata:{}\n\ndata: one\ndata: two\n\nevent: message_stop\ndata: {}\n\n";

fn expected() -> Vec<Event> {
    pairs(&[("message_start", "{\"a\":\"é\"}"), ("", ""), ("ping", "{}"), ("", "one\ntwo"), ("message_stop", "{}")])
}

#[test]
fn str_2_all_three_line_endings_give_the_same_events() {
    for ending in ["\n", "\r\n", "\r"] {
        assert_eq!(events(&[STREAM.replace('\n', ending).as_bytes()]), expected(), "{ending:?}");
    }
}

#[test]
fn str_2_every_single_cut_gives_the_same_events() {
    for ending in ["\n", "\r\n", "\r"] {
        let text = STREAM.replace('\n', ending);
        for cut in 0..=text.len() {
            let (head, tail) = text.as_bytes().split_at(cut);
            assert_eq!(events(&[head, tail]), expected(), "cut at {cut} with {ending:?}");
        }
    }
}

#[test]
fn str_2_every_single_cut_hands_on_the_same_bytes() {
    for ending in ["\n", "\r\n"] {
        let text = STREAM.replace('\n', ending);
        for cut in 0..=text.len() {
            let (head, tail) = text.as_bytes().split_at(cut);
            assert_eq!(handed_on(&[head, tail]), text.as_bytes(), "cut at {cut} with {ending:?}");
        }
    }
    // A reader that cuts at LF sees where each event ends, whatever the lines of the upstream end in.
    assert_eq!(handed_on(&[b"data: 1\r\rdata: 2\r\r"]), b"data: 1\r\r\ndata: 2\r\r\n");
}

#[test]
fn str_2_a_byte_order_mark_is_not_part_of_the_first_name() {
    let text = format!("\u{feff}{STREAM}");
    for cut in 0..8 {
        let (head, tail) = text.as_bytes().split_at(cut);
        assert_eq!(events(&[head, tail]), expected(), "cut at {cut}");
    }
}

#[test]
fn a_last_event_without_its_blank_line_is_still_read() {
    assert_eq!(events(&[b"event: error\ndata: {}"]), pairs(&[("error", "{}")]));
    assert_eq!(events(&[b"event: error\ndata: {}\n"]), pairs(&[("error", "{}")]));
    assert_eq!(events(&[b"data: x\n\n\n"]), pairs(&[("", "x"), ("", "")]));
}

#[test]
fn a_frame_within_one_chunk_is_not_copied() {
    let chunk = Bytes::from_static(b"event: ping\ndata: {}\n\nevent: ping\ndata: {}\n\n");
    let mut splitter = Splitter::new(1024);
    splitter.feed(chunk.clone());
    let first = splitter.next().unwrap().unwrap();
    let second = splitter.next().unwrap().unwrap();
    assert_eq!(first.0.as_ptr(), chunk.as_ptr());
    assert_eq!(second.0.as_ptr(), chunk[22..].as_ptr());
}

#[test]
fn a_chunk_without_certain_words_leaves_whole() {
    let delta = "event: content_block_delta\ndata: {}\n\n";
    let words = [Finder::new("message_"), Finder::new("error")];
    let mut splitter = Splitter::new(1024);
    splitter.feed(Bytes::from(format!("{delta}{delta}event: content_block_stop\ndata")));
    assert_eq!(splitter.calm(&words).unwrap().len(), 2 * delta.len());
    assert!(splitter.next().unwrap().is_none());
    // In the middle of a frame nothing is calm.
    splitter.feed(Bytes::from(format!(": {{}}\n\n{delta}")));
    assert_eq!(splitter.calm(&words), None);
    assert_eq!(splitter.next().unwrap().unwrap().event(), b"content_block_stop");
    assert_eq!(splitter.calm(&words).unwrap(), delta);
    for noisy in
        [format!("{delta}event: message_stop\ndata: {{}}\n\n"), format!("{delta}: hush\n\n"), ": hush\n\n".to_owned()]
    {
        let mut splitter = Splitter::new(1024);
        splitter.feed(Bytes::from(noisy.clone()));
        assert_eq!(splitter.calm(&words), None, "{noisy:?}");
    }
    splitter.feed(Bytes::from(format!("{delta}event: message_stop\ndata: {{}}\n\n")));
    assert_eq!(splitter.next().unwrap().unwrap().event(), b"content_block_delta");
}

#[test]
fn a_run_of_frames_is_one_piece_of_the_chunk() {
    let delta = "event: content_block_delta\ndata: {}\n\n";
    let chunk = Bytes::from(format!("{delta}{delta}event: message_delta\ndata: {{}}\n\n{delta}event: content"));
    let mut splitter = Splitter::new(1024);
    splitter.feed(chunk.clone());
    let wanted = |frame: &[u8]| frame.starts_with(b"event: content_block_delta\n");
    let run = splitter.run(wanted).unwrap();
    assert_eq!((run.as_ptr(), run.len()), (chunk.as_ptr(), 2 * delta.len()));
    assert_eq!(splitter.run(wanted), None);
    assert_eq!(splitter.next().unwrap().unwrap().event(), b"message_delta");
    assert_eq!(splitter.run(wanted).unwrap(), delta);
    assert_eq!(splitter.run(wanted), None);
    assert!(splitter.next().unwrap().is_none());
}

#[test]
fn an_event_over_the_limit_is_refused_whole_or_in_parts() {
    let long = format!("data: {}\n\n", "x".repeat(100));
    let mut whole = Splitter::new(64);
    whole.feed(Bytes::from(long.clone()));
    assert_eq!(whole.next().unwrap_err(), TooLarge(64));
    let mut parts = Splitter::new(64);
    let mut refused = false;
    for chunk in long.as_bytes().chunks(10) {
        parts.feed(Bytes::copy_from_slice(chunk));
        match parts.next() {
            Ok(None) => {}
            Err(error) => {
                assert_eq!(error, TooLarge(64));
                refused = true;
                break;
            }
            Ok(Some(_)) => panic!("a frame over the limit came out"),
        }
    }
    assert!(refused);
}

#[test]
fn a_comment_is_silent_and_an_event_is_not() {
    assert!(Frame(Bytes::from_static(b": TIDEGATE PROCESSING\n\n")).is_silent());
    assert!(!Frame(Bytes::from_static(b": x\ndata: {}\n\n")).is_silent());
}

#[test]
fn what_is_encoded_is_read_back() {
    let mut out = BytesMut::new();
    encode(&mut out, "ping", b"{\"type\":\"ping\"}");
    assert_eq!(&out[..], b"event: ping\ndata: {\"type\":\"ping\"}\n\n");
    assert_eq!(events(&[&out]), pairs(&[("ping", "{\"type\":\"ping\"}")]));
}

/// The rules of the WHATWG document, one character at a time and without any of the splitter's shortcuts.
fn reference(text: &[u8]) -> Vec<Event> {
    let text = text.strip_prefix(BOM).unwrap_or(text);
    let (mut lines, mut line, mut bytes) = (Vec::new(), Vec::new(), text.iter().copied().peekable());
    let mut ended = true;
    while let Some(byte) = bytes.next() {
        ended = matches!(byte, b'\n' | b'\r');
        if byte == b'\r' && bytes.peek() == Some(&b'\n') {
            bytes.next();
        }
        if ended {
            lines.push((std::mem::take(&mut line), true));
        } else {
            line.push(byte);
        }
    }
    if !ended {
        lines.push((line, false));
    }
    let (mut events, mut name, mut data, mut any) = (Vec::new(), Vec::new(), None::<Vec<u8>>, false);
    for (line, _) in lines {
        if line.is_empty() {
            events.push((std::mem::take(&mut name), data.take().unwrap_or_default()));
            any = false;
            continue;
        }
        any = true;
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or(b"");
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"event" => name = value.to_vec(),
            b"data" => match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            },
            _ => {}
        }
    }
    if any {
        events.push((name, data.unwrap_or_default()));
    }
    events
}

fn stream_text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "\r\n\r\n",
        "event: ping",
        "event:x",
        "data: {\"a\":1}",
        "data:é",
        "data",
        ":comment",
        "id: 7",
        "\u{feff}",
        "",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn str_2_any_split_agrees_with_the_reference(text in stream_text(), cuts in prop::collection::vec(0_usize..200, 0..8)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        let (mut chunks, mut from) = (Vec::new(), 0);
        for cut in cuts {
            chunks.push(&text[from..cut]);
            from = cut;
        }
        chunks.push(&text[from..]);
        prop_assert_eq!(events(&chunks), reference(&text));
        prop_assert_eq!(handed_on(&chunks), handed_on(&[&text]));
        prop_assert_eq!(events_by_runs(&chunks, |_| true), reference(&text));
        prop_assert_eq!(events_by_runs(&chunks, |frame| frame.starts_with(b"event: ping")), reference(&text));
    }
}
