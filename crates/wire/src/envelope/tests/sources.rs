//! What images and documents must hold.

use super::*;

fn with_block(block: &str) -> String {
    format!(
        r#"{{"model":"a/b","max_tokens":9,"messages":[{{"role":"user","content":[{{"type":"text","text":"what is this?"}},{block}]}}]}}"#
    )
}

#[test]
fn an_image_of_a_kind_that_nobody_reads_is_refused_wherever_its_members_stand() {
    let refused = [
        r#"{"type":"image","source":{"type":"base64","media_type":"image/bmp","data":"Qk0="}}"#,
        r#"{"source":{"data":"Qk0=","media_type":"image/bmp","type":"base64"},"type":"image"}"#,
        r#"{"source":{"media_type":"IMAGE/PNG","data":"Qk0=","type":"base64"},"type":"im\u0061ge"}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":7,"data":"Qk0="}}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":"application/pdf","data":"Qk0="}}"#,
    ];
    let problem = "Invalid request: messages[0].content[1].source.media_type must be one of image/jpeg, image/png, image/gif, image/webp";
    for block in refused {
        let violation = read(with_block(block).as_bytes(), BRAND, Purpose::Generate).map(drop).unwrap_err();
        assert_eq!(
            (violation.message.as_str(), violation.error_type),
            (problem, ErrorType::UnsupportedImageFormat),
            "{block}"
        );
    }
    for block in [
        r#"{"type":"image","source":{"type":"base64","data":"Qk0="}}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":null,"data":"Qk0="}}"#,
    ] {
        let violation = read(with_block(block).as_bytes(), BRAND, Purpose::Generate).map(drop).unwrap_err();
        assert_eq!(violation.message, "Invalid request: messages[0].content[1].source.media_type is required");
        assert_eq!(violation.error_type, ErrorType::InvalidRequest);
    }
    let twice = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","media_type":"image/bmp"}}"#;
    let violation = read(with_block(twice).as_bytes(), BRAND, Purpose::Count).map(drop).unwrap_err();
    assert_eq!(violation.message, "Invalid request: messages[0].content[1].source.media_type appears more than once");
}

#[test]
fn a_source_holds_what_its_type_needs() {
    for (block, problem) in [
        (r#"{"type":"image","source":{}}"#, "type is required"),
        (r#"{"type":"document","source":{"type":5}}"#, "type must be a string"),
        (r#"{"type":"image","source":{"type":"base64","media_type":"image/png"}}"#, "data is required"),
        (r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":5}}"#, "data must be a string"),
        (r#"{"type":"image","source":{"type":"url"}}"#, "url is required"),
        (r#"{"type":"image","source":{"type":"file","file_id":null}}"#, "file_id is required"),
        (r#"{"source":{"type":"base64","data":"JVBERi0="},"type":"document"}"#, "media_type is required"),
        (r#"{"type":"document","source":{"type":"base64","media_type":"application/pdf"}}"#, "data is required"),
        (r#"{"type":"document","source":{"type":"text","data":"x"}}"#, "media_type is required"),
        (r#"{"type":"document","source":{"type":"text","media_type":"text/plain"}}"#, "data is required"),
        (r#"{"type":"document","source":{"type":"url","url":["https://x"]}}"#, "url must be a string"),
        (r#"{"type":"document","source":{"type":"file"}}"#, "file_id is required"),
        (r#"{"type":"document","source":{"type":"content"}}"#, "content is required"),
        (r#"{"type":"document","source":{"type":"content","content":{}}}"#, "content must be a string or an array"),
    ] {
        let violation = read(with_block(block).as_bytes(), BRAND, Purpose::Generate).map(drop).unwrap_err();
        let expected = format!("Invalid request: messages[0].content[1].source.{problem}");
        assert_eq!((violation.message, violation.error_type), (expected, ErrorType::InvalidRequest), "{block}");
    }
}

#[test]
fn sources_of_other_kinds_are_the_providers_to_judge() {
    let accepted = [
        r#"{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"/9j/"}}"#,
        r#"{"type":"image","source":{"data":"iVBOR","type":"base64","media_type":"image/png"}}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"R0lG"}}"#,
        r#"{"source":{"media_type":"image\/webp","type":"base64","data":"UklG"},"type":"image"}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"not base64"}}"#,
        r#"{"type":"image","source":{"type":"url","url":"https://example.com/a.bmp","media_type":"image/bmp"}}"#,
        r#"{"type":"image","source":{"type":"file","file_id":"file_1"}}"#,
        r#"{"type":"image","source":{"type":"from_the_future","media_type":"image/avif"}}"#,
        r#"{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}}"#,
        r#"{"type":"document","source":{"type":"content","content":[{"type":"text","text":"x"}]}}"#,
        r#"{"type":"search_result","source":"https://example.com","title":"t","content":[]}"#,
        r#"{"type":"from_the_future","source":[1,null]}"#,
    ];
    for block in accepted {
        let read = read(with_block(block).as_bytes(), BRAND, Purpose::Generate).map(drop);
        assert_eq!(read, Ok(()), "{block}");
    }
}
