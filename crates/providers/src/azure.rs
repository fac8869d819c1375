//! Keys for Azure: of whole resources, or of single deployments whose owner says where each is called.

use http::HeaderValue;
use serde::Deserialize;
use url::Url;

use crate::credential::{Part, carried};
use crate::platform::{Auth, Protocol};

/// A resource, or one deployment of a model.
pub struct Entry {
    pub key: HeaderValue,
    pub resource: Option<String>,
    /// Models of the resource speak the Messages protocol.
    pub is_foundry: bool,
    pub deployment: Option<Deployment>,
}

/// One deployment of a model.
pub struct Deployment {
    /// The catalogue's name of the only model it serves.
    pub model: String,
    /// The model's name there.
    pub name: String,
    /// What paths are put behind.
    pub base: String,
    /// What stands behind every path, such as the version of the interface.
    pub query: Option<String>,
    /// The one protocol that its owner's address is for; `None` where it is a base for several.
    pub protocol: Option<Protocol>,
}

impl Deployment {
    /// Of an address as its owner gave it: a base, or all of the address at which the model is called, as Azure's portal shows
    /// it. What is called is made of the base again, so it is the same to the letter.
    fn new(model: String, name: String, address: &str) -> Self {
        // Host names are alike in any case, and a port that is the usual one is none: what is stored and what is called are
        // compared as text.
        let parsed = Url::parse(address);
        let address = parsed.as_ref().map_or(address, Url::as_str);
        let address = address.split_once('#').map_or(address, |(address, _)| address);
        let (path, query) = address.split_once('?').map_or((address, None), |(path, query)| (path, Some(query)));
        let path = path.trim_end_matches('/');
        let calls = [
            ("/chat/completions", Protocol::Chat),
            ("/responses", Protocol::Responses),
            ("/v1/messages", Protocol::Messages),
        ];
        let named = calls.iter().find_map(|(end, protocol)| Some((path.strip_suffix(end)?, *protocol)));
        let (base, protocol) = match named {
            Some((base, protocol)) => (base, Some(protocol)),
            // Below a deployment there are no responses (Azure OpenAI's data plane reference).
            None => (path, is_classic(path).then_some(Protocol::Chat)),
        };
        Self { model, name, base: base.to_owned(), query: query.map(str::to_owned), protocol }
    }
}

/// Whether an address ends with the name of a deployment, as `…/openai/deployments/NAME`.
fn is_classic(path: &str) -> bool {
    let place = path.rsplit_once('/').map(|(place, _)| place);
    place.is_some_and(|place| place.ends_with("/openai/deployments"))
}

/// Where models other than Anthropic's are called at a resource of Foundry (Microsoft's migration guide to its v1 API names
/// both hosts).
const FOUNDRY: &str = "https://{resource}.services.ai.azure.com/openai/v1";

impl Entry {
    /// Whether it may be called this way. A resource of Foundry serves all models, one of Azure OpenAI none of Anthropic's.
    pub(crate) fn serves(&self, auth: Auth) -> bool {
        self.deployment.is_some() || self.is_foundry || auth != Auth::FoundryKey
    }

    /// The address with gaps at which this resource is called.
    pub(crate) fn template<'t>(&self, auth: Auth, template: &'t str) -> &'t str {
        if self.is_foundry && auth != Auth::FoundryKey { FOUNDRY } else { template }
    }
}

/// The entry for a model: its own deployment, else the first resource of the kind that is asked, else any that serves it.
pub(crate) fn entry<'a>(entries: &'a [Entry], auth: Auth, model: &str) -> Option<&'a Entry> {
    let is_foundry = auth == Auth::FoundryKey;
    let own = |entry: &&Entry| entry.deployment.as_ref().is_some_and(|deployment| deployment.model == model);
    let resources = || entries.iter().filter(|entry| entry.deployment.is_none() && entry.serves(auth));
    let of_kind = || resources().find(|entry| entry.is_foundry == is_foundry);
    entries.iter().find(own).or_else(of_kind).or_else(|| resources().next())
}

pub(crate) fn read(bytes: &[u8]) -> Option<Vec<Entry>> {
    #[derive(Deserialize)]
    struct Written {
        api_key: Part,
        resource_name: Option<String>,
        resource_type: Option<String>,
        model_slug: Option<String>,
        endpoint_url: Option<String>,
        model_id: Option<String>,
    }
    let entries: Vec<Written> = serde_json::from_slice(bytes).ok()?;
    let made = entries.into_iter().map(|entry| {
        let deployment = match (entry.model_slug, entry.endpoint_url, entry.model_id) {
            (Some(model), Some(address), Some(name)) => Some(Deployment::new(model, name, &address)),
            _ => None,
        };
        Some(Entry {
            key: carried(&entry.api_key.secret(), Auth::AzureKey)?,
            resource: entry.resource_name,
            is_foundry: entry.resource_type.as_deref() == Some("ai_foundry"),
            deployment,
        })
    });
    made.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_address_says_what_is_spoken_there() {
        const HOST: &str = "https://my.openai.azure.com";
        for (path, base, query, protocol) in [
            ("", "", None, None),
            ("/openai/v1", "/openai/v1", None, None),
            ("/openai/v1/", "/openai/v1", None, None),
            ("/openai/v1?api-version=preview", "/openai/v1", Some("api-version=preview"), None),
            ("/openai/v1/chat/completions", "/openai/v1", None, Some(Protocol::Chat)),
            (
                "/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
                "/openai/deployments/gpt",
                Some("api-version=2024-10-21"),
                Some(Protocol::Chat),
            ),
            (
                "/openai/deployments/gpt?api-version=1",
                "/openai/deployments/gpt",
                Some("api-version=1"),
                Some(Protocol::Chat),
            ),
            ("/openai/deployments/gpt/", "/openai/deployments/gpt", None, Some(Protocol::Chat)),
            ("/openai/deployments", "/openai/deployments", None, None),
            ("/openai/responses?api-version=1#x", "/openai", Some("api-version=1"), Some(Protocol::Responses)),
            ("/anthropic/v1/messages", "/anthropic", None, Some(Protocol::Messages)),
        ] {
            let made = Deployment::new("m".to_owned(), "n".to_owned(), &format!("{HOST}{path}"));
            assert_eq!(made.base, format!("{HOST}{base}"), "{path}");
            assert_eq!((made.query.as_deref(), made.protocol), (query, protocol), "{path}");
        }
    }

    #[test]
    fn an_address_is_the_same_however_its_host_is_written() {
        for address in [
            "HTTPS://my.openai.azure.com/openai/v1",
            "https://My.OpenAI.Azure.com/openai/v1",
            "https://my.openai.azure.com:443/openai/v1/",
        ] {
            let made = Deployment::new("m".to_owned(), "n".to_owned(), address);
            assert_eq!(made.base, "https://my.openai.azure.com/openai/v1", "{address}");
        }
        let bare = Deployment::new("m".to_owned(), "n".to_owned(), "https://my.openai.azure.com?api-version=1");
        assert_eq!((&*bare.base, bare.query.as_deref()), ("https://my.openai.azure.com", Some("api-version=1")));
    }
}
