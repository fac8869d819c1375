//! People who sign in with an OpenID Connect issuer of the operator's choice: the browser is sent there (`flow`), comes
//! back with a code, the code is exchanged for a token (`issuer`), and the token says who it is (`token`).

mod flow;
mod issuer;
mod token;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_store::members::Identity;
use tidegate_store::vault::Vault;

pub use flow::{Flow, LIFE, START};
use issuer::Issuer;

use crate::config::Oidc;

/// How long everything that is asked of the issuer for one sign-in may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// The way to the issuer; one per process.
pub struct Door {
    pub settings: Arc<Oidc>,
    /// Where the issuer sends people back to.
    redirect: String,
    issuer: Issuer,
}

/// Why somebody could not sign in: what they read, and what the operator finds in the log.
#[derive(Debug)]
pub struct Refusal {
    pub told: String,
    pub logged: String,
}

impl Refusal {
    fn new(told: impl Into<String>, logged: impl Into<String>) -> Self {
        Self { told: told.into(), logged: logged.into() }
    }
}

/// The issuer, or the way to it, is at fault.
fn broken(logged: impl Into<String>) -> Refusal {
    Refusal::new(
        "The sign-in service did not answer as it should. Ask whoever runs this gateway to look at its log.",
        logged,
    )
}

impl Door {
    pub fn new(settings: Arc<Oidc>, public_url: &str) -> Self {
        let redirect = format!("{}{}", public_url.trim_end_matches('/'), flow::CALLBACK);
        Self { settings, redirect, issuer: Issuer::default() }
    }

    /// Where the browser is sent for this flow.
    pub async fn address(&self, vault: &Vault, flow: &Flow, now: Timestamp) -> Result<String, Refusal> {
        let known = within(self.issuer.known(&self.settings, now)).await?;
        let mut url = known.authorization.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &self.redirect)
            .append_pair("scope", &self.settings.scopes.join(" "))
            .append_pair("state", &flow.state(vault))
            .append_pair("nonce", &flow.nonce(vault))
            .append_pair("code_challenge", &flow.challenge(vault))
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    /// Who it is that came back with this code.
    pub async fn identity(&self, vault: &Vault, flow: &Flow, code: &str, now: Timestamp) -> Result<Identity, Refusal> {
        within(async {
            let known = self.issuer.known(&self.settings, now).await?;
            let given =
                self.issuer.exchange(&self.settings, &known, code, &self.redirect, &flow.verifier(vault)).await?;
            let expected = token::Expected { settings: &self.settings, nonce: &flow.nonce(vault), now };
            let kid = token::key_id(&given.id_token);
            let known = match known.keys.iter().any(|key| kid.is_none() || key.common.key_id == kid) {
                true => known,
                // Issuers change their keys now and then.
                false => self.issuer.known_anew(&self.settings, known, now).await?,
            };
            let mut claims = token::read(&given.id_token, &known.keys, &expected)
                .map_err(|reason| broken(format!("the issuer's token is not accepted: {reason}")))?;
            if claims.email.is_none()
                && let (Some(address), Some(access)) = (&known.userinfo, &given.access_token)
            {
                match self.issuer.userinfo(address, access).await {
                    // Anything else is about somebody else.
                    Ok(more) if more.sub == claims.sub => claims.complete(more),
                    Ok(_) => {}
                    // Who is known by the subject needs no address.
                    Err(refusal) => tracing::warn!(reason = %refusal.logged, "the issuer does not say who somebody is"),
                }
            }
            Ok(claims.identity(&self.settings))
        })
        .await
    }
}

async fn within<T>(asked: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(outcome) => outcome,
        Err(_) => Err(broken("the issuer takes too long")),
    }
}
