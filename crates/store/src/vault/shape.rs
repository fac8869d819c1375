//! What a provider's secret must look like, and the label it is shown by. Nothing is asked of the provider.
//!
//! Some secrets are JSON that holds several values. Those that end up in a host name are held to what a host name may
//! be: they decide where the secret is sent.

use std::fmt;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde_json::value::RawValue;
use tidegate_core::Secret;
use url::Url;
use zeroize::Zeroizing;

/// The fewest characters of which any are shown.
const SHOWN_FROM: usize = 16;
const HIDDEN: &str = "***";
/// Longer than any project's; it is shown whole.
const PROJECT_CHARACTERS: usize = 100;

/// How the hosts of Azure's resources end, in every cloud, and those of its gateway. A customer's deployment may be at any of
/// them and nowhere else: whoever asks where it may be called asks this list.
pub const AZURE_DOMAINS: [&str; 4] = [".azure.com", ".azure-api.net", ".azure.us", ".azure.cn"];

/// What may be known of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub label: String,
}

/// Checks a secret, trimmed of white space, against what its provider takes. The reason says what to change and holds
/// nothing of the secret.
pub fn describe(provider: &str, secret: &Secret) -> Result<Described, &'static str> {
    let label = secret.expose(|bytes| {
        let text = std::str::from_utf8(bytes).map_err(|_| "must be UTF-8 text")?;
        match provider {
            _ if text.is_empty() => Err("must not be empty"),
            "amazon-bedrock" if text.starts_with('{') => bedrock(text),
            "google-vertex" => vertex(text),
            "azure" => azure(text),
            _ => plain(text),
        }
    })?;
    Ok(Described { label })
}

fn plain(text: &str) -> Result<String, &'static str> {
    if !is_visible(text) {
        return Err("must be visible ASCII characters only: remove spaces, line breaks and control characters");
    }
    Ok(mask(text))
}

fn bedrock(text: &str) -> Result<String, &'static str> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Keys<'a> {
        #[serde(borrow)]
        access_key_id: Option<Part<'a>>,
        #[serde(borrow)]
        secret_access_key: Option<Part<'a>>,
        #[serde(borrow)]
        region: Option<Part<'a>>,
        #[serde(borrow)]
        session_token: Option<Part<'a>>,
    }

    let keys: Keys = serde_json::from_str(text).map_err(
        |_| "must be a Bedrock API key or a JSON object with the strings accessKeyId, secretAccessKey and region",
    )?;
    let id = visible(keys.access_key_id, "accessKeyId must be there, of visible ASCII characters only")?;
    visible(keys.secret_access_key, "secretAccessKey must be there, of visible ASCII characters only")?;
    if !keys.region.is_some_and(|region| is_host_label(&region)) {
        return Err("region must be there, of letters, digits and dashes, such as us-east-1");
    }
    if keys.session_token.is_some_and(|token| !is_visible(&token)) {
        return Err("sessionToken must be of visible ASCII characters only, or not be there");
    }
    Ok(mask(&id))
}

fn vertex(text: &str) -> Result<String, &'static str> {
    #[derive(Deserialize)]
    struct Account<'a> {
        #[serde(borrow, rename = "type")]
        kind: Option<Part<'a>>,
        #[serde(borrow)]
        project_id: Option<Part<'a>>,
        #[serde(borrow)]
        private_key_id: Option<Part<'a>>,
        /// Its line breaks are escaped, so reading it would make a copy that nobody wipes.
        #[serde(borrow)]
        private_key: Option<&'a RawValue>,
        #[serde(borrow)]
        client_email: Option<Part<'a>>,
        #[serde(borrow)]
        region: Option<Part<'a>>,
    }

    const SHAPE: &str = "must be the JSON key file of a Google Cloud service account";
    if !text.starts_with('{') {
        return Err(SHAPE);
    }
    let account: Account = serde_json::from_str(text).map_err(|_| SHAPE)?;
    if account.kind.as_deref() != Some("service_account") {
        return Err(r#"type must be "service_account": use the JSON key file of a service account"#);
    }
    let Some(project) = account.project_id.filter(|project| is_project(project)) else {
        return Err("project_id must be there, of letters, digits, dashes, dots and colons");
    };
    let key_id = visible(account.private_key_id, "private_key_id must be there, of visible ASCII characters only")?;
    if !account.private_key.is_some_and(|key| key.get().starts_with('"') && key.get() != r#""""#) {
        return Err("private_key must be there and not be empty");
    }
    visible(account.client_email, "client_email must be there, of visible ASCII characters only")?;
    if account.region.is_some_and(|region| !is_host_label(&region)) {
        return Err("region must be of letters, digits and dashes, such as europe-west4, or not be there");
    }
    Ok(format!("{}...{}", &*project, tail(&key_id).as_deref().unwrap_or(HIDDEN)))
}

fn azure(text: &str) -> Result<String, &'static str> {
    const SHAPE: &str = "must be a JSON array of objects, one for each resource or deployment";
    let entries: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| SHAPE)?;
    let mut labels = Vec::new();
    for entry in &entries {
        // An array in the place of an object would be read as its members in their order.
        if !entry.get().starts_with('{') {
            return Err(SHAPE);
        }
        labels.push(azure_entry(entry.get())?);
    }
    let more = labels.len().saturating_sub(1);
    let first = labels.into_iter().next().ok_or("must have at least one entry")?;
    Ok(if more == 0 { first } else { format!("{first} (+{more})") })
}

fn azure_entry(text: &str) -> Result<String, &'static str> {
    #[derive(Deserialize)]
    struct Entry<'a> {
        #[serde(borrow)]
        api_key: Option<Part<'a>>,
        #[serde(borrow)]
        resource_name: Option<Part<'a>>,
        #[serde(borrow)]
        resource_type: Option<Part<'a>>,
        #[serde(borrow)]
        model_slug: Option<Part<'a>>,
        #[serde(borrow)]
        endpoint_url: Option<Part<'a>>,
        #[serde(borrow)]
        model_id: Option<Part<'a>>,
    }

    let entry: Entry =
        serde_json::from_str(text).map_err(|_| "every member of an entry must be a string, given once")?;
    let label = mask(&visible(entry.api_key, "api_key must be in every entry, of visible ASCII characters only")?);
    let is_deployment = entry.model_slug.is_some() || entry.endpoint_url.is_some() || entry.model_id.is_some();
    if is_deployment {
        if entry.resource_name.is_some() || entry.resource_type.is_some() {
            return Err("an entry has either resource_name or model_slug, endpoint_url and model_id, not both");
        }
        visible(entry.model_slug, "model_slug must be in the entry of a deployment")?;
        visible(entry.model_id, "model_id must be in the entry of a deployment")?;
        if !entry.endpoint_url.is_some_and(|url| is_https(&url)) {
            return Err(
                "endpoint_url must be there, an https address of Azure's such as https://my.openai.azure.com/openai/v1",
            );
        }
    } else {
        if !entry.resource_name.is_some_and(|name| is_host_label(&name)) {
            return Err(
                "an entry needs resource_name, of letters, digits and dashes, or model_slug, endpoint_url and model_id",
            );
        }
        if entry.resource_type.is_some_and(|kind| !matches!(&*kind, "ai_foundry" | "openai")) {
            return Err("resource_type must be ai_foundry or openai");
        }
    }
    Ok(label)
}

/// The first three and the last four characters of a text that is long enough to spare them.
fn mask(text: &str) -> String {
    match tail(text) {
        Some(tail) => text.chars().take(3).chain("...".chars()).chain(tail.chars()).collect(),
        None => HIDDEN.to_owned(),
    }
}

fn tail(text: &str) -> Option<String> {
    let count = text.chars().count();
    (count >= SHOWN_FROM).then(|| text.chars().skip(count - 4).collect())
}

fn visible<'a>(part: Option<Part<'a>>, otherwise: &'static str) -> Result<Part<'a>, &'static str> {
    part.filter(|part| is_visible(part)).ok_or(otherwise)
}

/// Whether a header can carry it.
fn is_visible(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_host_label(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with('-') && !text.ends_with('-')
}

/// Old projects carry their domain: `example.com:name`.
fn is_project(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
    let starts = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    starts && text.len() <= PROJECT_CHARACTERS && text.bytes().all(allowed)
}

fn is_https(text: &str) -> bool {
    // The parser would silently drop line breaks, and with them the likeness to what is stored.
    let url = Url::parse(text).ok().filter(|_| is_visible(text));
    // It is called with a client that goes where operators send it: a customer's address must be Azure's.
    let is_azures = |host: &str| AZURE_DOMAINS.iter().any(|end| host.ends_with(end));
    url.is_some_and(|url| {
        url.scheme() == "https"
            && url.host_str().is_some_and(is_azures)
            && matches!(url.port(), None | Some(443))
            && url.username().is_empty()
            && url.password().is_none()
    })
}

/// A string inside the secret: borrowed from it, or wiped when dropped. Best effort: of a string with escapes the
/// parser keeps a copy in its own buffer, which it does not wipe.
enum Part<'a> {
    Borrowed(&'a str),
    Owned(Zeroizing<String>),
}

impl Deref for Part<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Part<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Part<'de>, E> {
                Ok(Part::Borrowed(text))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Part<'de>, E> {
                Ok(Part::Owned(Zeroizing::new(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Reader)
    }
}

#[cfg(test)]
mod tests;
