//! One way to the issuer and back. The browser carries it in a cookie that we sign; what must be secret or must not be
//! guessed is derived from it with a key of ours, so nothing is stored and the cookie gives nothing away.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_core::{KeyHash, Timestamp, id};
use tidegate_store::vault::Vault;

/// Where the way begins, and the only place its cookie goes to.
pub const START: &str = "/dashboard/oidc";
pub const CALLBACK: &str = "/dashboard/oidc/callback";
/// So long somebody may take to sign in at the issuer.
pub const LIFE: Duration = Duration::from_secs(600);
/// Browsers keep cookies of up to 4,096 bytes.
const LONGEST_AIM: usize = 2_400;

const COOKIE: &str = "oidc";
const STATE: &str = "oidc-state";
const NONCE: &str = "oidc-nonce";
const VERIFIER: &str = "oidc-verifier";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    id: String,
    until: Timestamp,
    /// The page that was asked for.
    pub aim: String,
}

impl Flow {
    /// `None` when the page's address is too long to be carried.
    pub fn begin(aim: &str, now: Timestamp) -> Option<Self> {
        let id = URL_SAFE_NO_PAD.encode(id::random::<16>());
        (aim.len() <= LONGEST_AIM).then(|| Self { id, until: now.plus(LIFE), aim: aim.to_owned() })
    }

    /// What the browser carries.
    pub fn cookie(&self, vault: &Vault) -> String {
        let payload = format!("{}.{}.{}", self.id, self.until.0, URL_SAFE_NO_PAD.encode(&self.aim));
        let tag = URL_SAFE_NO_PAD.encode(vault.sign(COOKIE, payload.as_bytes()));
        format!("{payload}.{tag}")
    }

    /// The flow of a cookie that is ours and not over.
    pub fn read(vault: &Vault, cookie: &str, now: Timestamp) -> Option<Self> {
        let (payload, tag) = cookie.rsplit_once('.')?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        if !vault.verify(COOKIE, payload.as_bytes(), &tag) {
            return None;
        }
        let mut parts = payload.split('.');
        let (id, until, aim) = (parts.next()?, parts.next()?.parse().ok().map(Timestamp)?, parts.next()?);
        let aim = String::from_utf8(URL_SAFE_NO_PAD.decode(aim).ok()?).ok()?;
        (until > now).then(|| Self { id: id.to_owned(), until, aim })
    }

    /// What the issuer hands back, so that nobody is signed in who did not ask for it here.
    pub fn state(&self, vault: &Vault) -> String {
        self.derived(vault, STATE)
    }

    pub fn is_state(&self, vault: &Vault, text: &str) -> bool {
        URL_SAFE_NO_PAD.decode(text).is_ok_and(|tag| vault.verify(STATE, self.id.as_bytes(), &tag))
    }

    /// What the token must name, so that it was made for this flow.
    pub fn nonce(&self, vault: &Vault) -> String {
        self.derived(vault, NONCE)
    }

    /// What proves that the code is exchanged by whoever asked for it (RFC 7636).
    pub fn verifier(&self, vault: &Vault) -> String {
        self.derived(vault, VERIFIER)
    }

    pub fn challenge(&self, vault: &Vault) -> String {
        URL_SAFE_NO_PAD.encode(KeyHash::of(self.verifier(vault).as_bytes()).as_bytes())
    }

    fn derived(&self, vault: &Vault, label: &str) -> String {
        URL_SAFE_NO_PAD.encode(vault.sign(label, self.id.as_bytes()))
    }
}
