//! What an application asks for: the same whether it comes in a body or in the address of the authorization page.

use tidegate_core::{Money, Timestamp};
use tidegate_store::auth_codes::{Application, Challenge, Method};
use tidegate_store::keys::LimitReset;

use super::callback::Callback;
use super::pkce;
use crate::api::form::{Form, Issues, Query, parse_uuid};
use crate::api::time::future;
use crate::config::Oauth;

pub const LONGEST_LABEL: usize = 100;
const LONGEST_STATE: usize = 512;
const LONGEST_SPAWN: usize = 256;
/// Titles come from a header that anyone can set.
const LONGEST_TITLE: usize = 100;

pub const METHODS: [(&str, Method); 2] = [("S256", Method::S256), ("plain", Method::Plain)];
pub const RESETS: [(&str, LimitReset); 3] =
    [("daily", LimitReset::Daily), ("weekly", LimitReset::Weekly), ("monthly", LimitReset::Monthly)];

/// A request for a code. Whether its workspace exists is not known here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// `None`: headless, the person carries the code.
    pub callback: Option<Callback>,
    pub challenge: Option<Challenge>,
    pub key_label: Option<String>,
    pub limit: Option<Money>,
    pub limit_reset: Option<LimitReset>,
    pub expires: Option<Timestamp>,
    pub spawn_agent: Option<String>,
    pub spawn_cloud: Option<String>,
    pub workspace: Option<String>,
    pub state: Option<String>,
}

impl Asked {
    /// From the body of `POST /auth/keys/code`. Mistakes are left in the form.
    pub fn from_form(form: &mut Form<'_>, rules: &Oauth, now: Timestamp) -> Self {
        let callback = form.text("callback_url", 0..=usize::MAX);
        let callback = form.require("callback_url", callback);
        let challenge = form.text("code_challenge", 0..=usize::MAX);
        let method = form.word("code_challenge_method", &METHODS);
        let label = form.text("key_label", 0..=LONGEST_LABEL);
        refuse_controls(label.as_deref(), &mut form.issues);
        let expires = form.nullable("expires_at", |reader, raw| reader.future(raw, now, false)).flatten();
        let asked = Self {
            limit: form.money("limit"),
            limit_reset: form.word("usage_limit_type", &RESETS),
            expires,
            spawn_agent: form.text("spawn_agent", 0..=usize::MAX).map(cut),
            spawn_cloud: form.text("spawn_cloud", 0..=usize::MAX).map(cut),
            workspace: form.uuid("workspace_id"),
            key_label: label.and_then(trimmed),
            ..Self::default()
        };
        asked.with(callback.as_deref(), challenge.as_deref(), method, rules, &mut form.issues)
    }

    /// From the address of the authorization page. Mistakes are left in the query.
    pub fn from_query(query: &mut Query, rules: &Oauth, now: Timestamp) -> Self {
        query.refuse_empty(&["callback_url", "code_challenge", "code_challenge_method"]);
        let callback = query.text("callback_url");
        let challenge = query.text("code_challenge");
        let method = query.word("code_challenge_method", &METHODS);
        if callback.is_none() && challenge.is_none() && query.issues.is_empty() {
            query.issues.add("code_challenge", "is required when there is no callback_url");
        }
        let label = query.text("key_label").and_then(trimmed);
        if label.as_ref().is_some_and(|label| label.chars().count() > LONGEST_LABEL) {
            query.issues.add("key_label", "must have at most 100 characters");
        }
        refuse_controls(label.as_deref(), &mut query.issues);
        let state = query.text("state");
        if state.as_ref().is_some_and(|state| state.chars().count() > LONGEST_STATE) {
            query.issues.add("state", "must have at most 512 characters");
        }
        let limit = query.text("limit").and_then(|text| match Money::parse(&text) {
            Ok(limit) => Some(limit),
            Err(error) => {
                query.issues.add("limit", error.to_string());
                None
            }
        });
        let expires = query.text("expires_at").and_then(|text| match future(&text, now, false) {
            Ok(instant) => Some(instant),
            Err(message) => {
                query.issues.add("expires_at", message);
                None
            }
        });
        let workspace = query.text("workspace_id").and_then(|text| {
            let id = parse_uuid(&text);
            if id.is_none() {
                query.issues.add("workspace_id", "must be a UUID");
            }
            id
        });
        let asked = Self {
            limit,
            limit_reset: query.word("usage_limit_type", &RESETS),
            expires,
            spawn_agent: query.text("spawn_agent").map(cut),
            spawn_cloud: query.text("spawn_cloud").map(cut),
            workspace,
            key_label: label,
            state,
            ..Self::default()
        };
        asked.with(callback.as_deref(), challenge.as_deref(), method, rules, &mut query.issues)
    }

    fn with(
        mut self,
        callback: Option<&str>,
        challenge: Option<&str>,
        method: Option<Method>,
        rules: &Oauth,
        issues: &mut Issues,
    ) -> Self {
        match callback.map(Callback::parse).transpose() {
            Ok(callback) => self.callback = callback,
            Err(reason) => issues.add("callback_url", reason),
        }
        // A method that could not be read has been noted; a challenge must not be judged by another one.
        if !issues.mention("code_challenge_method") && !issues.mention("code_challenge") {
            match pkce::challenge(challenge, method, rules) {
                Ok(challenge) => self.challenge = challenge,
                Err((member, reason)) => issues.add(member, reason),
            }
        }
        self
    }

    /// The application this is for. `title` is what a header calls it; an address of the person's own machine keeps its
    /// name, since anyone can listen there.
    pub fn application(&self, title: Option<&str>) -> Application {
        match &self.callback {
            Some(callback) => Application {
                origin: callback.origin(),
                title: callback.title(),
                new_title: title
                    .filter(|_| !callback.is_local())
                    .and_then(|title| trimmed(title.to_owned()))
                    .map(|title| title.chars().take(LONGEST_TITLE).collect()),
            },
            None => {
                let title = self.key_label.as_deref().unwrap_or("headless");
                Application { origin: format!("headless:{title}"), title: title.to_owned(), new_title: None }
            }
        }
    }
}

/// The label is chosen by an application and read by people, on terminals too.
fn refuse_controls(label: Option<&str>, issues: &mut Issues) {
    if label.is_some_and(|label| label.trim().chars().any(char::is_control)) {
        issues.add("key_label", "must not contain control characters");
    }
}

fn trimmed(text: String) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn cut(text: String) -> String {
    text.chars().take(LONGEST_SPAWN).collect()
}
