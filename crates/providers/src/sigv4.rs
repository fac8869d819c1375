//! Amazon's signature of a request, version 4. Nothing is kept: keys come with the call and go with it.

use std::fmt::Write as _;

use aws_lc_rs::{digest, hmac};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tidegate_core::Timestamp;
use tidegate_core::key::hex;

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const CONTENT: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Headers that proxies and clients change or add on the way; a signature over them would not hold.
const UNSIGNED: [&str; 11] = [
    "authorization",
    "connection",
    "user-agent",
    "accept-encoding",
    "content-length",
    "expect",
    "transfer-encoding",
    "te",
    "traceparent",
    "tracestate",
    "x-amzn-trace-id",
];

/// Whose signature it is. It has no `Debug`: two of its members are secrets.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    pub access_key_id: &'a str,
    pub secret_access_key: &'a [u8],
    pub session_token: Option<&'a [u8]>,
}

/// For which service, where.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    pub region: &'a str,
    pub name: &'a str,
}

impl Service<'_> {
    /// The store of objects alone signs a path as it is sent, and wants the hash of the body in a header.
    fn is_object_store(&self) -> bool {
        self.name == "s3"
    }
}

/// Why a request cannot be signed: it names no host, a key cannot stand in a header, or the time is out of this world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsignable;

/// Adds the headers that sign the request: `host`, `x-amz-date`, the session's token and `authorization`. `uri` is
/// absolute and its path already encoded; `body` is exactly what is sent.
pub fn sign(
    method: &Method,
    uri: &Uri,
    headers: &mut HeaderMap,
    body: &[u8],
    credentials: &Credentials<'_>,
    service: &Service<'_>,
    now: Timestamp,
) -> Result<(), Unsignable> {
    let instant = jiff::Timestamp::from_millisecond(now.0).map_err(|_| Unsignable)?;
    let time = instant.strftime("%Y%m%dT%H%M%SZ").to_string();
    let day = time.get(..8).ok_or(Unsignable)?;
    if !headers.contains_key(HOST) {
        let host = uri.authority().ok_or(Unsignable)?.as_str();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| Unsignable)?);
    }
    headers.insert(DATE, HeaderValue::from_str(&time).map_err(|_| Unsignable)?);
    if let Some(token) = credentials.session_token {
        let mut token = HeaderValue::from_bytes(token).map_err(|_| Unsignable)?;
        token.set_sensitive(true);
        headers.insert(TOKEN, token);
    }
    if service.is_object_store() {
        headers.insert(CONTENT, HeaderValue::from_str(&sha256(body)).map_err(|_| Unsignable)?);
    }
    let path = if service.is_object_store() { uri.path().to_owned() } else { encoded_again(uri.path()) };
    let (canonical, signed) = canonical_request(method, &path, uri.query(), headers, body);
    let scope = format!("{day}/{}/{}/aws4_request", service.region, service.name);
    let to_sign = format!("{ALGORITHM}\n{time}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let signature = hex(mac(&signing_key(credentials, day, service), to_sign.as_bytes()).as_ref());
    let value = format!(
        "{ALGORITHM} Credential={}/{scope}, SignedHeaders={signed}, Signature={signature}",
        credentials.access_key_id
    );
    let mut value = HeaderValue::from_str(&value).map_err(|_| Unsignable)?;
    value.set_sensitive(true);
    headers.insert(AUTHORIZATION, value);
    Ok(())
}

/// The request in the form that is signed, and the names of the headers in it.
fn canonical_request(
    method: &Method,
    path: &str,
    query: Option<&str>,
    headers: &HeaderMap,
    body: &[u8],
) -> (String, String) {
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).filter(|name| !UNSIGNED.contains(name)).collect();
    names.sort_unstable();
    let mut lines = String::new();
    for name in &names {
        let values: Vec<String> = headers.get_all(*name).iter().map(|value| trimmed(value.as_bytes())).collect();
        writeln!(lines, "{name}:{}", values.join(",")).expect("a string takes everything");
    }
    let signed = names.join(";");
    let query = canonical_query(query.unwrap_or_default());
    (format!("{method}\n{path}\n{query}\n{lines}\n{signed}\n{}", sha256(body)), signed)
}

/// The path is encoded once more than it is sent: `%3A` becomes `%253A`.
fn encoded_again(path: &str) -> String {
    let path = if path.is_empty() { "/" } else { path };
    encoded(path, b"-._~/")
}

fn encoded(text: &str, plain: &[u8]) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a string takes everything");
        }
    }
    out
}

/// Sorted by name and value; what is encoded already stays.
fn canonical_query(query: &str) -> String {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(String, String)> = pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (encoded(name, b"-._~%"), encoded(value, b"-._~%"))
        })
        .collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// Without spaces around it, and one for several inside.
fn trimmed(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn signing_key(credentials: &Credentials<'_>, day: &str, service: &Service<'_>) -> hmac::Tag {
    let first = tidegate_core::Secret::new([b"AWS4", credentials.secret_access_key].concat());
    let mut key = first.expose(|first| mac_of(first, day.as_bytes()));
    for part in [service.region, service.name, "aws4_request"] {
        key = mac(&key, part.as_bytes());
    }
    key
}

fn mac(key: &hmac::Tag, text: &[u8]) -> hmac::Tag {
    mac_of(key.as_ref(), text)
}

fn mac_of(key: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    // 2026-11-02T10:00:00Z
    const NOW: Timestamp = Timestamp(1_793_613_600_000);
    const BODY: &[u8] = br#"{"messages":[{"role":"user","content":[{"text":"hi"}]}]}"#;
    const URI: &str = "https://bedrock-runtime.us-east-1.amazonaws.com/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A111122223333%3Ainference-profile%2Fus.example.model-v1%3A0/converse";
    const KEYS: Credentials<'static> =
        Credentials { access_key_id: "TIDEKEY", secret_access_key: b"TIDESECRET", session_token: None };
    const BEDROCK: Service<'static> = Service { region: "us-east-1", name: "bedrock" };

    fn signed(mut headers: HeaderMap, credentials: &Credentials<'_>) -> HeaderMap {
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        sign(&Method::POST, &Uri::from_static(URI), &mut headers, BODY, credentials, &BEDROCK, NOW).unwrap();
        headers
    }

    #[test]
    fn the_published_request_has_the_published_signature() {
        let headers = signed(HeaderMap::new(), &KEYS);
        let path = encoded_again(Uri::from_static(URI).path());
        let canonical = canonical_request(&Method::POST, &path, None, &headers, BODY).0;
        let wanted = "POST\n/model/arn%253Aaws%253Abedrock%253Aus-east-1%253A111122223333%253Ainference-profile%252Fus.example.model-v1%253A0/converse\n\ncontent-type:application/json\nhost:bedrock-runtime.us-east-1.amazonaws.com\nx-amz-date:20261102T100000Z\n\ncontent-type;host;x-amz-date\nc3335e07d6e89650bf94cb98664be69f8774dbc3198df221f113db0a59ea14f0";
        assert_eq!(canonical, wanted);
        assert_eq!(
            headers[AUTHORIZATION],
            "AWS4-HMAC-SHA256 Credential=TIDEKEY/20261102/us-east-1/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=eac8221d8b85d7896ae5c1a8c8c2db160448275506ebc2a2a3a4fb4e17e5658e"
        );
        assert!(headers[AUTHORIZATION].is_sensitive());
    }

    /// Both are examples of "Authenticating Requests: Using the Authorization Header", in Amazon's reference of S3.
    #[test]
    fn objects_have_the_published_signatures() {
        const KEYS: Credentials<'static> = Credentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE",
            secret_access_key: b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            session_token: None,
        };
        const S3: Service<'static> = Service { region: "us-east-1", name: "s3" };
        // 2013-05-24T00:00:00Z
        const NOW: Timestamp = Timestamp(1_369_353_600_000);
        let signature = |method: Method, uri: &'static str, more: &[(&'static str, &'static str)], body: &[u8]| {
            let mut headers = HeaderMap::new();
            for (name, value) in more {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            sign(&method, &Uri::from_static(uri), &mut headers, body, &KEYS, &S3, NOW).unwrap();
            headers[AUTHORIZATION].to_str().unwrap().rsplit_once("Signature=").unwrap().1.to_owned()
        };
        let get =
            signature(Method::GET, "https://examplebucket.s3.amazonaws.com/test.txt", &[("range", "bytes=0-9")], b"");
        assert_eq!(get, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
        let put = signature(
            Method::PUT,
            "https://examplebucket.s3.amazonaws.com/test%24file.text",
            &[("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")],
            b"Welcome to Amazon S3.",
        );
        assert_eq!(put, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    }

    #[test]
    fn what_changes_on_the_way_is_not_signed_and_a_token_is() {
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", HeaderValue::from_static("x"));
        headers.insert("traceparent", HeaderValue::from_static("00"));
        let same = signed(headers, &KEYS);
        assert_eq!(same[AUTHORIZATION], signed(HeaderMap::new(), &KEYS)[AUTHORIZATION]);
        let session = signed(HeaderMap::new(), &Credentials { session_token: Some(b"token"), ..KEYS });
        assert!(session[TOKEN].is_sensitive());
        let value = session[AUTHORIZATION].to_str().unwrap();
        assert!(value.contains("SignedHeaders=content-type;host;x-amz-date;x-amz-security-token,"), "{value}");
    }

    #[test]
    fn a_second_signature_replaces_the_first() {
        let once = signed(HeaderMap::new(), &KEYS);
        assert_eq!(signed(once.clone(), &KEYS), once);
    }

    #[test]
    fn queries_are_sorted_and_values_trimmed() {
        assert_eq!(canonical_query("b=2&a=1&a=0&c&d=%20+"), "a=0&a=1&b=2&c=&d=%20%2B");
        assert_eq!(trimmed(b"  a   b "), "a b");
    }

    #[test]
    fn what_cannot_be_signed_is_said() {
        let mut headers = HeaderMap::new();
        let relative = sign(&Method::POST, &Uri::from_static("/x"), &mut headers, b"", &KEYS, &BEDROCK, NOW);
        assert_eq!(relative, Err(Unsignable));
        let keys = Credentials { session_token: Some(b"a\nb"), ..KEYS };
        assert_eq!(
            sign(&Method::POST, &Uri::from_static(URI), &mut headers, b"", &keys, &BEDROCK, NOW),
            Err(Unsignable)
        );
    }
}
