//! What a call is authorised with, made once from a secret. What a secret must look like when it is stored is the
//! vault's affair; here it is only taken apart.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tidegate_core::Secret;
use zeroize::{Zeroize as _, Zeroizing};

use crate::anthropic::API_KEY;
use crate::azure::{self, Deployment, entry};
use crate::google;
use crate::platform::{Auth, Protocol, filled, google_host};

const GOOGLE_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
const AZURE_KEY: HeaderName = HeaderName::from_static("api-key");

/// Said of a service account whose key signs nothing.
pub const NO_KEY: &str = "private_key must be an RSA key in PEM form, as it stands in the key file";

/// An opened credential. Copies share its secret bytes, which are wiped with the last one.
#[derive(Clone)]
pub enum Credential {
    /// A key that travels as it is.
    Key(Auth, HeaderValue),
    Aws(Arc<AwsKeys>),
    Google(Arc<ServiceAccount>),
    /// Keys of several resources or deployments.
    Azure(Auth, Arc<[azure::Entry]>),
}

/// An access key, which signs each request.
pub struct AwsKeys {
    pub id: String,
    pub secret: Secret,
    pub token: Option<Secret>,
    pub region: Option<String>,
}

/// A service account, which is given a token for an hour.
pub struct ServiceAccount {
    pub project: String,
    pub email: String,
    pub key_id: String,
    /// PEM.
    pub private_key: Secret,
    /// `global` where nothing is said.
    pub region: Option<String>,
    /// Only for an operator's own account: a customer does not choose where we ask for tokens.
    pub token_uri: Option<String>,
}

impl ServiceAccount {
    pub fn region(&self) -> &str {
        self.region.as_deref().unwrap_or("global")
    }
}

/// What kind it is, and nothing of what it holds.
impl fmt::Debug for Credential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Key(..) => "Key",
            Self::Aws(_) => "Aws",
            Self::Google(_) => "Google",
            Self::Azure(..) => "Azure",
        })
    }
}

impl Credential {
    /// From a secret as it was stored; `None` when it is not what this way of authentication takes.
    pub fn read(auth: Auth, secret: &Secret) -> Option<Self> {
        let is_json = |first: u8| secret.expose(|bytes| bytes.trim_ascii_start().first() == Some(&first));
        match auth {
            Auth::Aws if is_json(b'{') => secret.expose(aws).map(|keys| Self::Aws(Arc::new(keys))),
            Auth::Google if is_json(b'{') => {
                secret.expose(service_account).map(|account| Self::Google(Arc::new(account)))
            }
            Auth::AzureKey | Auth::FoundryKey if is_json(b'[') => {
                secret.expose(azure::read).map(|entries| Self::Azure(auth, entries.into()))
            }
            auth => carried(secret, auth).map(|value| Self::Key(auth, value)),
        }
    }

    /// What the secret itself says of the place it is for, by the name of a gap in an address.
    pub fn place(&self, name: &str, model: &str) -> Option<String> {
        match (self, name) {
            (Self::Aws(keys), "region") => keys.region.clone(),
            (Self::Google(account), "project") => Some(account.project.clone()),
            (Self::Google(account), "region") => Some(account.region().to_owned()),
            (Self::Google(account), "google_host") => Some(google_host(account.region())),
            (Self::Azure(auth, entries), "resource") => entry(entries, *auth, model)?.resource.clone(),
            _ => None,
        }
    }

    /// The address of a model: one with gaps, filled with what the secret says. The name of a gap that it does not fill.
    pub fn address<'t>(&self, template: &'t str, model: &str) -> Result<String, &'t str> {
        let template = match self {
            Self::Azure(auth, entries) => {
                entry(entries, *auth, model).map_or(template, |entry| entry.template(*auth, template))
            }
            _ => template,
        };
        filled(template, |gap| self.place(gap, model))
    }

    /// Whether it names the place it is for, so that the operator's own region or project does not count.
    pub fn is_placed(&self) -> bool {
        match self {
            Self::Key(..) => false,
            Self::Aws(keys) => keys.region.is_some(),
            Self::Google(_) | Self::Azure(..) => true,
        }
    }

    /// Scheme, host and port of every place that it names, in an address with gaps or by itself.
    pub fn places(&self, template: Option<&str>) -> Vec<String> {
        let mut found = Vec::new();
        let mut add = |address: &str| {
            let start = address.find("://").map_or(0, |place| place + 3);
            let end = address[start..].find('/').map_or(address.len(), |place| start + place);
            found.push(address[..end].to_owned());
        };
        match self {
            Self::Azure(auth, entries) => {
                for entry in entries.iter().filter(|entry| entry.serves(*auth)) {
                    let resource = |gap: &str| entry.resource.clone().filter(|_| gap == "resource");
                    match (&entry.deployment, template) {
                        (Some(deployment), _) => add(&deployment.base),
                        (None, Some(template)) => {
                            if let Ok(address) = filled(entry.template(*auth, template), resource) {
                                add(&address);
                            }
                        }
                        (None, None) => {}
                    }
                }
            }
            _ => {
                if let Some(Ok(address)) = template.map(|template| filled(template, |gap| self.place(gap, ""))) {
                    add(&address);
                }
            }
        }
        found
    }

    /// What makes it useless wherever it is sent, in words that fit behind a colon and say what to change.
    pub fn flaw(&self) -> Option<&'static str> {
        match self {
            Self::Google(account) if !google::signs(account) => Some(NO_KEY),
            _ => None,
        }
    }

    /// Puts a key where it belongs. What must be signed or exchanged first is not done here.
    pub fn put(&self, headers: &mut HeaderMap, auth: Auth, model: &str) {
        let (auth, value) = match self {
            Self::Key(auth, value) => (*auth, value),
            Self::Azure(_, entries) => match entry(entries, auth, model) {
                Some(entry) => (auth, &entry.key),
                None => return,
            },
            Self::Aws(_) | Self::Google(_) => return,
        };
        match auth {
            Auth::ApiKey => headers.insert(API_KEY, value.clone()),
            Auth::Bearer | Auth::Aws | Auth::Google => headers.insert(AUTHORIZATION, value.clone()),
            Auth::GoogleKey => headers.insert(GOOGLE_KEY, value.clone()),
            Auth::AzureKey => headers.insert(AZURE_KEY, value.clone()),
            Auth::FoundryKey => {
                headers.insert(API_KEY, value.clone());
                headers.insert(AZURE_KEY, value.clone())
            }
        };
    }

    /// The deployment of a model that its owner has named.
    pub fn deployment(&self, model: &str) -> Option<&Deployment> {
        let Self::Azure(auth, entries) = self else { return None };
        entry(entries, *auth, model)?.deployment.as_ref()
    }

    /// The models whose deployments are called in one protocol alone, each once.
    pub fn spoken(&self) -> Vec<(&str, Protocol)> {
        let Self::Azure(_, entries) = self else { return Vec::new() };
        let deployments = entries.iter().filter_map(|entry| entry.deployment.as_ref());
        let first = |one: &&Deployment| self.deployment(&one.model).is_some_and(|first| std::ptr::eq(first, *one));
        deployments.filter(first).filter_map(|one| Some((&*one.model, one.protocol?))).collect()
    }
}

/// A text of a secret that is wiped when it is dropped.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Part(String);

impl Part {
    pub(crate) fn secret(self) -> Secret {
        Secret::new(self.0.as_bytes())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

fn aws(bytes: &[u8]) -> Option<AwsKeys> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Keys {
        access_key_id: String,
        secret_access_key: Part,
        region: Option<String>,
        session_token: Option<Part>,
    }
    let keys: Keys = serde_json::from_slice(bytes).ok()?;
    Some(AwsKeys {
        id: keys.access_key_id,
        secret: keys.secret_access_key.secret(),
        token: keys.session_token.map(Part::secret),
        region: keys.region,
    })
}

fn service_account(bytes: &[u8]) -> Option<ServiceAccount> {
    #[derive(Deserialize)]
    struct Account {
        project_id: String,
        client_email: String,
        private_key_id: String,
        private_key: Part,
        region: Option<String>,
        token_uri: Option<String>,
    }
    let account: Account = serde_json::from_slice(bytes).ok()?;
    Some(ServiceAccount {
        project: account.project_id,
        email: account.client_email,
        key_id: account.private_key_id,
        private_key: pem(&account.private_key),
        region: account.region,
        token_uri: account.token_uri,
    })
}

/// A key whose line breaks were written as two characters each, as it comes out of a shell or a file of variables.
fn pem(key: &Part) -> Secret {
    Secret::new(Zeroizing::new(key.0.replace("\\n", "\n")).as_bytes())
}

/// The header value that carries a secret. Its bytes are wiped when the last copy of the value is dropped: copies share
/// them.
pub(crate) fn carried(secret: &Secret, auth: Auth) -> Option<HeaderValue> {
    struct Wiped(Zeroizing<Vec<u8>>);
    impl AsRef<[u8]> for Wiped {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let bytes = secret.expose(|secret| match auth {
        Auth::ApiKey | Auth::GoogleKey | Auth::AzureKey | Auth::FoundryKey => secret.to_vec(),
        Auth::Bearer | Auth::Aws | Auth::Google => [b"Bearer ", secret].concat(),
    });
    let bytes = Bytes::from_owner(Wiped(Zeroizing::new(bytes)));
    let mut value = HeaderValue::from_maybe_shared(bytes).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// A bearer that was given to us for a while.
pub fn bearer(token: &Secret) -> Option<HeaderValue> {
    carried(token, Auth::Bearer)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
    use aws_lc_rs::rsa::{KeyPair, KeySize};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn headers(auth: Auth, secret: &str, model: &str) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        Credential::read(auth, &Secret::new(secret)).unwrap().put(&mut headers, auth, model);
        headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_key_travels_in_the_header_its_provider_wants() {
        assert_eq!(headers(Auth::ApiKey, "k", "m"), [pair("x-api-key", "k")]);
        assert_eq!(headers(Auth::Bearer, "k", "m"), [pair("authorization", "Bearer k")]);
        assert_eq!(headers(Auth::GoogleKey, "k", "m"), [pair("x-goog-api-key", "k")]);
        assert_eq!(headers(Auth::AzureKey, "k", "m"), [pair("api-key", "k")]);
        assert_eq!(headers(Auth::FoundryKey, "k", "m"), [pair("x-api-key", "k"), pair("api-key", "k")]);
        assert_eq!(headers(Auth::Aws, "bedrock-key", "m"), [pair("authorization", "Bearer bedrock-key")]);
    }

    #[test]
    fn secrets_of_several_parts_say_where_they_belong() {
        let aws = r#"{"accessKeyId":"A","secretAccessKey":"S","region":"eu-west-1"}"#;
        let aws = Credential::read(Auth::Aws, &Secret::new(aws)).unwrap();
        assert_eq!(aws.place("region", "m").as_deref(), Some("eu-west-1"));
        let google =
            r#"{"type":"service_account","project_id":"p","private_key_id":"i","private_key":"k","client_email":"e"}"#;
        let google = Credential::read(Auth::Google, &Secret::new(google)).unwrap();
        assert_eq!(google.place("google_host", "m").as_deref(), Some("aiplatform.googleapis.com"));
        assert_eq!(google.place("project", "m").as_deref(), Some("p"));
        let azure = r#"[{"api_key":"one","resource_name":"r"},
            {"api_key":"two","model_slug":"openai/x","endpoint_url":"https://d.example/openai","model_id":"dep"}]"#;
        assert_eq!(headers(Auth::AzureKey, azure, "openai/x"), [pair("api-key", "two")]);
        assert_eq!(headers(Auth::AzureKey, azure, "openai/y"), [pair("api-key", "one")]);
        let azure = Credential::read(Auth::AzureKey, &Secret::new(azure)).unwrap();
        let deployment = |model: &str| azure.deployment(model).map(|found| (&*found.base, &*found.name));
        assert_eq!(deployment("openai/x"), Some(("https://d.example/openai", "dep")));
        assert_eq!((deployment("openai/y"), azure.place("resource", "openai/y")), (None, Some("r".to_owned())));
    }

    #[test]
    fn a_deployment_says_in_which_protocol_it_is_called_once_for_each_model() {
        let entry = |model: &str, path: &str| {
            format!(
                r#"{{"api_key":"k","model_slug":"{model}","endpoint_url":"https://d.example{path}","model_id":"d"}}"#
            )
        };
        let list = [
            entry("openai/a", "/openai/deployments/a/chat/completions"),
            entry("openai/a", "/openai/responses"),
            entry("openai/b", "/openai/v1"),
            entry("openai/b", "/openai/v1/chat/completions"),
            entry("openai/c", "/openai/v1/responses"),
            r#"{"api_key":"k","resource_name":"r"}"#.to_owned(),
        ];
        let azure = Credential::read(Auth::AzureKey, &Secret::new(format!("[{}]", list.join(",")))).unwrap();
        // The first entry of a model is the one that is used.
        assert_eq!(azure.spoken(), [("openai/a", Protocol::Chat), ("openai/c", Protocol::Responses)]);
        assert!(Credential::read(Auth::Bearer, &Secret::new("k")).unwrap().spoken().is_empty());
    }

    #[test]
    fn a_service_account_signs_with_a_key_whose_line_breaks_were_lost_and_with_no_other_text() {
        let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).unwrap();
        let encoded = STANDARD.encode(der.as_ref());
        let lines: Vec<&str> = encoded.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"));
        let flaw = |private_key: &str| {
            let account = serde_json::json!({
                "project_id": "p", "private_key_id": "i", "client_email": "e", "private_key": private_key,
            });
            Credential::read(Auth::Google, &Secret::new(account.to_string())).unwrap().flaw()
        };
        for sound in [pem.clone(), pem.replace('\n', "\\n"), pem.replace('\n', "\r\n")] {
            assert_eq!(flaw(&sound), None, "{sound:?}");
        }
        for broken in ["k".to_owned(), pem.replacen(lines[3], "", 1), encoded] {
            assert_eq!(flaw(&broken), Some(NO_KEY), "{broken:?}");
        }
    }

    #[test]
    fn what_is_not_a_credential_of_its_kind_is_none() {
        assert!(Credential::read(Auth::Aws, &Secret::new(r#"{"accessKeyId":"A"}"#)).is_none());
        assert!(Credential::read(Auth::Bearer, &Secret::new("line\nbreak")).is_none());
    }
}
