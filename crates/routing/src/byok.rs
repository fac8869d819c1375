//! Credentials of customers: whom each may serve, and in which order they come before and after the operator's own.

use std::borrow::Borrow;
use std::sync::Arc;

use tidegate_core::KeyHash;

use crate::catalogue::Endpoint;

/// A customer's credential, as far as routing must know it: everything but the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub id: Arc<str>,
    pub provider: Arc<str>,
    /// Scheme, host and port it may be sent to. Without one it is sent nowhere.
    pub destination: Option<Box<str>>,
    pub disabled: bool,
    /// Used only when everything else has failed.
    pub is_fallback: bool,
    /// For the models it applies to, the operator's own key of this provider is not used.
    pub is_required: bool,
    /// The same for every model of the provider.
    pub is_byok_only: bool,
    /// Whether nothing is kept of what is said with it, where its owner says so: another contract than the operator's.
    pub declared_zdr: Option<bool>,
    pub sort_order: i64,
    /// `None`: no restriction. An empty list matches nothing.
    pub models: Option<Box<[Box<str>]>>,
    pub users: Option<Box<[Box<str>]>>,
    pub keys: Option<Box<[KeyHash]>>,
}

impl Credential {
    /// One of which nothing is known but whose it is: it is for everybody and everything, and is sent nowhere.
    pub fn new(id: impl Into<Arc<str>>, provider: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            provider: provider.into(),
            destination: None,
            disabled: false,
            is_fallback: false,
            is_required: false,
            is_byok_only: false,
            declared_zdr: None,
            sort_order: 0,
            models: None,
            users: None,
            keys: None,
        }
    }
}

/// Who is calling.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub key: &'a KeyHash,
    /// The person the key belongs to.
    pub user: Option<&'a str>,
}

/// The credentials of the caller's workspace.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    pub caller: Caller<'a>,
    /// In ascending `sort_order`.
    pub credentials: &'a [Arc<Credential>],
    /// Those that their provider refused a short while ago: they come after everything else.
    pub resting: &'a [Arc<str>],
}

impl Own<'_> {
    fn rests(&self, credential: &Credential) -> bool {
        self.resting.contains(&credential.id)
    }

    /// Whether the operator's own key serves an endpoint for this caller.
    fn shares(&self, endpoint: &Endpoint) -> bool {
        endpoint.shared && !self.credentials.iter().any(|credential| credential.displaces(endpoint))
    }
}

/// Credentials of each kind that are listed: enough to try, and no kind can hide another. Customers store as many as they
/// like; how many endpoints there are is the operator's business.
const LISTED: usize = 8;

impl Credential {
    /// Whether it applies to a model, whoever asks. A variant such as `:free` is the same model.
    fn covers(&self, model: &str) -> bool {
        fn base(slug: &str) -> &str {
            slug.split(':').next().unwrap_or_default()
        }
        self.models.as_ref().is_none_or(|models| models.iter().any(|allowed| base(allowed) == base(model)))
    }

    /// Whether it may be used for this caller's request to this endpoint.
    pub fn serves(&self, caller: Caller<'_>, endpoint: &Endpoint) -> bool {
        let user = || caller.user.is_some_and(|user| self.users.iter().flatten().any(|allowed| **allowed == *user));
        !self.disabled
            && self.provider == endpoint.provider
            && self.destination.as_deref().is_some_and(|place| is_place(&endpoint.origin, place))
            && self.covers(&endpoint.model)
            && (self.users.is_none() || user())
            && self.keys.as_ref().is_none_or(|keys| keys.iter().any(|allowed| allowed.is(caller.key)))
    }

    /// Whether what is said to the endpoint with it is kept.
    fn retains(&self, endpoint: &Endpoint) -> bool {
        self.declared_zdr.map_or(endpoint.policy.retains, |keeps_nothing| !keeps_nothing)
    }

    /// Whether it keeps the operator's own key from serving the endpoint. That it cannot be used itself changes nothing:
    /// who switches off a key does not mean to go on with another one's.
    fn displaces(&self, endpoint: &Endpoint) -> bool {
        let applies = self.is_byok_only || (self.is_required && self.covers(&endpoint.model));
        applies && self.provider == endpoint.provider
    }
}

/// Whether one of the addresses that a credential was stored for is of this form, or of one of several.
pub fn is_place(origin: &str, stored: &str) -> bool {
    origin.split(' ').any(|form| is_of_form(form, stored))
}

fn is_of_form(origin: &str, stored: &str) -> bool {
    let Some((start, rest)) = origin.split_once('{') else { return stored.split(' ').any(|place| place == origin) };
    let end = rest.split_once('}').map_or("", |(_, end)| end);
    let fits = |place: &str| {
        let inner = place.strip_prefix(start).and_then(|inner| inner.strip_suffix(end));
        inner.is_some_and(|inner| {
            !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        })
    };
    stored.split(' ').any(fits)
}

/// Whether there is any way to call an endpoint.
pub(crate) fn is_reachable(endpoint: &Endpoint, own: Option<Own<'_>>) -> bool {
    let Some(own) = own else { return endpoint.shared };
    own.shares(endpoint) || own.credentials.iter().any(|credential| credential.serves(own.caller, endpoint))
}

/// Whether there is a way to call an endpoint that keeps nothing.
pub(crate) fn can_forget(endpoint: &Endpoint, own: Option<Own<'_>>) -> bool {
    let Some(own) = own else { return !endpoint.policy.retains };
    let forgets =
        |credential: &Arc<Credential>| !credential.retains(endpoint) && credential.serves(own.caller, endpoint);
    (own.shares(endpoint) && !endpoint.policy.retains) || own.credentials.iter().any(forgets)
}

/// Whether what is said to an endpoint in one way is kept: with a credential of the caller's, or the operator's.
pub(crate) fn retains(endpoint: &Endpoint, credential: Option<&Credential>) -> bool {
    credential.map_or(endpoint.policy.retains, |credential| credential.retains(endpoint))
}

/// The ways to call endpoints, in the order in which they are tried: the caller's own credentials, then the operator's,
/// then the caller's fallback credentials, then those that rest; each time in the order of the endpoints. Only those that
/// fit are ways at all.
pub(crate) fn candidates<'e, E: Borrow<Endpoint>>(
    endpoints: &'e [E],
    own: Option<Own<'e>>,
    fits: impl Fn(&E, Option<&Credential>) -> bool + Copy,
) -> impl Iterator<Item = (&'e E, Option<&'e Arc<Credential>>)> {
    let credentials = own.map_or(&[][..], |own| own.credentials);
    let with = move |wanted: fn(&Credential, bool) -> bool| {
        let all = endpoints.iter().flat_map(move |endpoint| {
            let usable = credentials.iter().filter(move |credential| {
                own.is_some_and(|own| {
                    wanted(credential, own.rests(credential))
                        && fits(endpoint, Some(credential))
                        && credential.serves(own.caller, endpoint.borrow())
                })
            });
            usable.map(move |credential| (endpoint, Some(credential)))
        });
        all.take(LISTED)
    };
    let is_shared = move |endpoint: &E| {
        let shares = |endpoint: &Endpoint| own.map_or(endpoint.shared, |own| own.shares(endpoint));
        fits(endpoint, None) && shares(endpoint.borrow())
    };
    let shared = endpoints.iter().filter(move |endpoint| is_shared(endpoint)).map(|endpoint| (endpoint, None));
    with(|credential, rests| !credential.is_fallback && !rests)
        .chain(shared)
        .chain(with(|credential, rests| credential.is_fallback && !rests))
        .chain(with(|_, rests| rests))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(provider: &str, shared: bool) -> Arc<Endpoint> {
        Arc::new(Endpoint { origin: "https://x".into(), shared, ..Endpoint::new("vendor/m", provider) })
    }

    fn credential(id: &str, provider: &str) -> Credential {
        Credential { destination: Some("https://x".into()), ..Credential::new(id, provider) }
    }

    #[test]
    fn an_address_with_a_gap_takes_what_the_credential_names() {
        let origin = "https://bedrock-runtime.{region}.amazonaws.com";
        assert!(is_place(origin, "https://bedrock-runtime.eu-west-1.amazonaws.com"));
        assert!(is_place(origin, "https://other.example https://bedrock-runtime.us-east-1.amazonaws.com"));
        for other in [
            "https://bedrock-runtime..amazonaws.com.evil.example",
            "https://bedrock-runtime.a/b.amazonaws.com",
            "https://bedrock-runtime.amazonaws.com",
            "",
        ] {
            assert!(!is_place(origin, other), "{other}");
        }
        assert!(is_place("https://x", "https://x") && !is_place("https://x", "https://y"));
        assert!(is_place("https://x", "https://y https://x") && !is_place("https://x", "https://xy"));
        let several = "https://{resource}.azure.com https://{resource}.azure.us";
        for (stored, fits) in [
            ("https://my.openai.azure.com", true),
            ("https://my.openai.azure.us openai/gpt=openai-chat", true),
            ("https://my.openai.azure.cn", false),
            ("https://.azure.com", false),
            ("https://evil.example/.azure.us", false),
            ("openai/gpt=openai-chat", false),
        ] {
            assert_eq!(is_place(several, stored), fits, "{stored}");
        }
    }

    fn order(endpoints: &[Arc<Endpoint>], credentials: Vec<Credential>) -> Vec<String> {
        let key = KeyHash::of(b"key");
        let credentials: Vec<_> = credentials.into_iter().map(Arc::new).collect();
        let resting: Vec<Arc<str>> = ["tired".into(), "weary".into()].into();
        let caller = Caller { key: &key, user: Some("user_1") };
        let own = Own { caller, credentials: &credentials, resting: &resting };
        let name = |(endpoint, credential): (&Arc<Endpoint>, Option<&Arc<Credential>>)| {
            format!("{} {}", endpoint.provider, credential.map_or("shared", |credential| &credential.id))
        };
        candidates(endpoints, Some(own), |_, _| true).map(name).collect()
    }

    #[test]
    fn own_credentials_come_first_and_fallback_ones_last() {
        let endpoints = [endpoint("p", true), endpoint("q", true), endpoint("r", false)];
        let last = Credential { is_fallback: true, ..credential("pf", "p") };
        let credentials = vec![credential("q1", "q"), credential("q2", "q"), last, credential("r1", "r")];
        let expected = ["q q1", "q q2", "r r1", "p shared", "q shared", "p pf"];
        assert_eq!(order(&endpoints, credentials), expected);
    }

    #[test]
    fn refused_credentials_come_after_everything_and_many_of_one_kind_hide_no_other() {
        let endpoints = [endpoint("p", true)];
        let weary = Credential { is_fallback: true, ..credential("weary", "p") };
        let credentials = vec![credential("tired", "p"), credential("fresh", "p"), weary];
        assert_eq!(order(&endpoints, credentials), ["p fresh", "p shared", "p tired", "p weary"]);
        let many: Vec<_> = (0..30).map(|number| credential(&number.to_string(), "p")).collect();
        assert!(order(&endpoints, many).contains(&"p shared".to_owned()));
    }

    #[test]
    fn the_specified_example_holds() {
        // Keys for Vertex only, Bedrock named first: Vertex (own key), Bedrock (shared), Vertex (shared).
        let endpoints = [endpoint("amazon-bedrock", true), endpoint("google-vertex", true)];
        let expected = ["google-vertex v", "amazon-bedrock shared", "google-vertex shared"];
        assert_eq!(order(&endpoints, vec![credential("v", "google-vertex")]), expected);
    }

    #[test]
    fn every_restriction_must_match_and_an_empty_list_matches_nothing() {
        let endpoints = [endpoint("p", false)];
        let texts = |list: &[&str]| Some(list.iter().map(|text| (*text).into()).collect());
        let keys = |list: &[&[u8]]| Some(list.iter().map(|key| KeyHash::of(key)).collect());
        let base = credential("c", "p");
        let cases = [
            (base.clone(), true),
            (Credential { disabled: true, ..base.clone() }, false),
            (Credential { provider: "q".into(), ..base.clone() }, false),
            (Credential { destination: Some("https://y".into()), ..base.clone() }, false),
            (Credential { destination: Some("http://x".into()), ..base.clone() }, false),
            (Credential { destination: None, ..base.clone() }, false),
            (Credential { models: texts(&["vendor/m"]), ..base.clone() }, true),
            (Credential { models: texts(&["vendor/m:free"]), ..base.clone() }, true),
            (Credential { models: texts(&["vendor/*", "vendor/mm", "m"]), ..base.clone() }, false),
            (Credential { models: texts(&[]), ..base.clone() }, false),
            (Credential { users: texts(&["user_2", "user_1"]), ..base.clone() }, true),
            (Credential { users: texts(&["user_2"]), ..base.clone() }, false),
            (Credential { users: texts(&[]), ..base.clone() }, false),
            (Credential { keys: keys(&[b"key"]), ..base.clone() }, true),
            (Credential { keys: keys(&[b"other"]), ..base.clone() }, false),
            (Credential { keys: keys(&[b"key"]), users: texts(&["user_2"]), ..base.clone() }, false),
        ];
        for (credential, serves) in cases {
            assert_eq!(order(&endpoints, vec![credential.clone()]).len(), usize::from(serves), "{credential:?}");
        }
        let key = KeyHash::of(b"key");
        let nobody = Caller { key: &key, user: None };
        let owned = Credential { users: texts(&["user_1"]), ..base };
        assert!(!owned.serves(nobody, &endpoints[0]), "a key without an owner matches no list of owners");
    }

    #[test]
    fn required_credentials_take_the_operators_key_out_of_the_plan() {
        let endpoints = [endpoint("p", true), endpoint("q", true)];
        let other = Some([Box::from("vendor/other")].into());
        let base = credential("c", "p");
        let required = Credential { is_required: true, ..base };
        assert_eq!(order(&endpoints, vec![required.clone()]), ["p c", "q shared"]);
        assert_eq!(order(&endpoints, vec![Credential { disabled: true, ..required.clone() }]), ["q shared"]);
        let elsewhere = Credential { models: other, ..required };
        assert_eq!(order(&endpoints, vec![elsewhere.clone()]), ["p shared", "q shared"]);
        let only = Credential { is_byok_only: true, is_required: false, ..elsewhere };
        assert_eq!(order(&endpoints, vec![only.clone()]), ["q shared"]);
        assert_eq!(order(&endpoints, vec![Credential { disabled: true, ..only }]), ["q shared"]);
    }
}
