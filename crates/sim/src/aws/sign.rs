//! Amazon's signatures, version 4: the shape of each, and for one known key whether it is right.

use aws_lc_rs::{digest, hmac};
use http::request::Parts;

use crate::failure::Failure;

/// A caller whose secret the server knows.
const KEY: &str = "SIMAWSKEY";
const SECRET: &str = "simawssecret";

pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// What an `authorization` header of this kind says.
struct Signed<'h> {
    key: &'h str,
    date: &'h str,
    region: &'h str,
    headers: Vec<&'h str>,
    signature: &'h str,
}

/// The id of the key that signed.
pub(super) fn key(authorization: &str) -> Option<&str> {
    read(authorization).ok().map(|signed| signed.key)
}

pub(super) fn check(authorization: &str, head: &Parts, body: &[u8]) -> Result<(), Failure> {
    let signed = read(authorization).map_err(incomplete)?;
    let time = text(head, "x-amz-date").ok_or_else(|| {
        incomplete("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.".into())
    })?;
    let plain = time.len() == 16 && time.is_ascii() && time.as_bytes()[8] == b'T' && time.ends_with('Z');
    if !plain {
        return Err(incomplete(format!("Date must be in ISO-8601 'basic format'. Got '{time}'.")));
    }
    if time.get(..8) != Some(signed.date) {
        let message = format!(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '{}' != '{time}'.",
            signed.date
        );
        return Err(wrong(message));
    }
    if head.headers.contains_key("content-type") && !signed.headers.contains(&"content-type") {
        return Err(incomplete("'content-type' must be a 'SignedHeader' in the AWS Authorization.".into()));
    }
    if signed.key != KEY {
        return Ok(());
    }
    let right = signature(&signed, SECRET, time, head, body);
    match aws_lc_rs::constant_time::verify_slices_are_equal(right.as_bytes(), signed.signature.as_bytes()) {
        Ok(()) => Ok(()),
        Err(_) => Err(wrong(
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret \
             Access Key and signing method. Consult the service documentation for details."
                .into(),
        )),
    }
}

fn incomplete(message: String) -> Failure {
    Failure { code: Some("IncompleteSignatureException"), ..Failure::new(403, message) }
}

fn wrong(message: String) -> Failure {
    Failure { code: Some("InvalidSignatureException"), ..Failure::new(403, message) }
}

fn read(authorization: &str) -> Result<Signed<'_>, String> {
    let rest = authorization.strip_prefix(ALGORITHM).map(str::trim).ok_or("Unsupported algorithm.")?;
    let member = |name: &str| {
        let mut pairs = rest.split(',').filter_map(|pair| pair.trim().split_once('='));
        let found = pairs.find(|(found, _)| *found == name).map(|(_, value)| value);
        found.ok_or_else(|| format!("Authorization header requires '{name}' parameter. Authorization={rest}"))
    };
    let scope: Vec<_> = member("Credential")?.split('/').collect();
    let [key, date, region, "bedrock", "aws4_request"] = scope[..] else {
        return Err("Credential should be scoped to correct service: 'bedrock'.".into());
    };
    if key.is_empty() || region.is_empty() || date.len() != 8 || !date.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("Credential must have the form KEY/YYYYMMDD/REGION/bedrock/aws4_request.".into());
    }
    let headers: Vec<_> = member("SignedHeaders")?.split(';').collect();
    for needed in ["host", "x-amz-date"] {
        if !headers.contains(&needed) {
            return Err(format!("'{needed}' must be a 'SignedHeader' in the AWS Authorization."));
        }
    }
    if !headers.is_sorted() || headers.iter().any(|name| name.bytes().any(|byte| byte.is_ascii_uppercase())) {
        return Err("SignedHeaders must be in lower case and sorted.".into());
    }
    let signature = member("Signature")?;
    if signature.len() != 64 || !signature.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
        return Err("Signature must be 64 hexadecimal digits.".into());
    }
    Ok(Signed { key, date, region, headers, signature })
}

fn signature(signed: &Signed<'_>, secret: &str, time: &str, head: &Parts, body: &[u8]) -> String {
    let Signed { date, region, headers, .. } = signed;
    let mut lines = String::new();
    for name in headers {
        lines.push_str(&format!("{name}:{}\n", value(head, name)));
    }
    let request = [
        head.method.as_str(),
        &path(head.uri.path()),
        &query(head.uri.query().unwrap_or_default()),
        &lines,
        &headers.join(";"),
        &hex(digest::digest(&digest::SHA256, body).as_ref()),
    ]
    .join("\n");
    let scope = format!("{date}/{region}/bedrock/aws4_request");
    let hashed = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in [date, region, "bedrock", "aws4_request"] {
        key = mac(&key, part);
    }
    hex(&mac(&key, &format!("{ALGORITHM}\n{time}\n{scope}\n{hashed}")))
}

fn mac(key: &[u8], data: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text<'h>(head: &'h Parts, name: &str) -> Option<&'h str> {
    head.headers.get(name)?.to_str().ok()
}

/// A header's values as they are signed: joined, with runs of spaces as one. HTTP/2 has the host in its URI.
fn value(head: &Parts, name: &str) -> String {
    let values: Vec<_> = head.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    if let (true, "host", Some(authority)) = (values.is_empty(), name, head.uri.authority()) {
        return authority.as_str().to_owned();
    }
    let plain = |value: &&str| value.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    values.iter().map(plain).collect::<Vec<_>>().join(",")
}

/// The path as it is signed: encoded once more than it was sent.
fn path(path: &str) -> String {
    let mut out = String::with_capacity(path.len() + 16);
    for byte in path.bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn query(query: &str) -> String {
    let mut pairs: Vec<_> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.contains('=') {
            true => pair.to_owned(),
            false => format!("{pair}="),
        })
        .collect();
    pairs.sort();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(path: &str, authorization: &str, date: &str) -> Parts {
        let request = http::Request::post(path)
            .header("host", "bedrock-runtime.us-east-1.amazonaws.com")
            .header("content-type", "application/json")
            .header("x-amz-date", date)
            .header("authorization", authorization);
        request.body(()).unwrap().into_parts().0
    }

    fn header(signature: &str) -> String {
        format!(
            "AWS4-HMAC-SHA256 Credential={KEY}/20261102/us-east-1/bedrock/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, Signature={signature}"
        )
    }

    const PATH: &str = "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A111122223333%3Ainference-profile%2Fm-v1%3A0/converse";
    const BODY: &[u8] = br#"{"messages":[{"role":"user","content":[{"text":"hi"}]}]}"#;
    const DATE: &str = "20261102T100000Z";

    #[test]
    fn a_path_is_encoded_once_more() {
        assert_eq!(path("/model/a%3Ab%2Fc:d/converse"), "/model/a%253Ab%252Fc%3Ad/converse");
        assert_eq!(query("b=2&a"), "a=&b=2");
    }

    /// Computed by a signer that is not ours.
    #[test]
    fn a_signature_is_the_one_other_signers_make() {
        let zero = header(&"0".repeat(64));
        let path = PATH.replace("m-v1", "us.example.model-v1");
        let made = signature(&read(&zero).unwrap(), "TIDESECRET", DATE, &sent(&path, &zero, DATE), BODY);
        assert_eq!(made, "eac8221d8b85d7896ae5c1a8c8c2db160448275506ebc2a2a3a4fb4e17e5658e");
    }

    #[test]
    fn a_known_key_is_held_to_its_signature() {
        let zero = header(&"0".repeat(64));
        let head = sent(PATH, &zero, DATE);
        let right = signature(&read(&zero).unwrap(), SECRET, DATE, &head, BODY);
        let right = header(&right);
        assert_eq!(check(&right, &head, BODY), Ok(()));
        assert_eq!(check(&zero, &head, BODY).unwrap_err().code, Some("InvalidSignatureException"));
        assert!(check(&right, &head, b"{}").is_err(), "another body");
        assert!(check(&right, &sent(PATH, &zero, "20261102T100001Z"), BODY).is_err(), "another time");
        let stranger = zero.replace(KEY, "OTHER");
        assert_eq!(check(&stranger, &sent(PATH, &stranger, DATE), BODY), Ok(()));
    }

    #[test]
    fn a_signature_has_its_shape() {
        let fine = header(&"a".repeat(64)).replace(KEY, "OTHER");
        let head = sent(PATH, &fine, DATE);
        for (from, to) in [
            ("bedrock/", "s3/"),
            ("20261102", "2026110"),
            ("20261102", "20261103"),
            ("host;", ""),
            ("content-type;", ""),
            (";x-amz-date", ""),
            ("content-type;host", "host;content-type"),
            ("Signature=a", "Signature=g"),
            ("Signature=a", "Signature="),
            ("Credential=", "Credentials="),
            ("AWS4-HMAC-SHA256", "AWS4"),
        ] {
            assert!(check(&fine.replacen(from, to, 1), &head, BODY).is_err(), "{from} {to}");
        }
    }
}
