//! `tidegate members`: the people of the organisation from a shell.

use anyhow::{Context as _, bail};
use tidegate_core::Tenant;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_store::Store;
use tidegate_store::audit::By;
use tidegate_store::members::{NewMember, Role};

use super::keys::open;
use super::out::{say, shown};
use crate::config::Source;

/// The longest address there can be (RFC 5321).
const LONGEST_EMAIL: usize = 254;
const LONGEST_NAME: usize = 100;

pub struct Add {
    pub email: String,
    pub role: Role,
    pub first_name: Option<String>,
    pub last_name: Option<String>,
}

pub async fn add(source: &Source, options: Add) -> anyhow::Result<()> {
    if !is_address(&options.email) {
        bail!("--email must be an address such as ada@example.com");
    }
    for (option, name) in [("--first-name", &options.first_name), ("--last-name", &options.last_name)] {
        let length = name.as_deref().map(|name| name.chars().count());
        if length.is_some_and(|length| length == 0 || length > LONGEST_NAME)
            || name.as_deref().is_some_and(|name| name.contains(char::is_control))
        {
            bail!("{option} must have 1 to {LONGEST_NAME} characters");
        }
    }
    let Add { email, role, first_name, last_name } = options;
    let (store, tenant) = open(source).await?;
    let new = NewMember { email, first_name, last_name, role };
    let member = store.add_member(&tenant, &By::shell(SystemClock.now()), new).await.context("--email")?;
    store.close().await;
    say!("{}", member.id)?;
    eprintln!("Added {} as {}.", shown(&member.email), member.role.as_str());
    Ok(())
}

/// Something before and something after one `@`; only a message sent there would tell more.
fn is_address(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c.is_control());
    text.len() <= LONGEST_EMAIL
        && text.split_once('@').is_some_and(|(local, domain)| {
            is_part(local) && is_part(domain) && !domain.contains('@') && domain.is_ascii()
        })
}

pub async fn list(source: &Source) -> anyhow::Result<()> {
    let (store, tenant) = open(source).await?;
    let listed = rows(&store, &tenant).await;
    store.close().await;
    listed
}

async fn rows(store: &Store, tenant: &Tenant) -> anyhow::Result<()> {
    say!("{:<32} {:<7} {:<32} NAME", "ID", "ROLE", "EMAIL")?;
    let page = 100;
    for offset in (0..).step_by(page as usize) {
        let (members, _) = store.list_members(tenant, offset, page).await?;
        for member in &members {
            let names = [member.first_name.as_deref(), member.last_name.as_deref()];
            let name = names.into_iter().flatten().collect::<Vec<_>>().join(" ");
            let (role, email) = (member.role.as_str(), shown(&member.email));
            say!("{:<32} {role:<7} {email:<32} {}", member.id, shown(&name))?;
        }
        if members.len() < page as usize {
            break;
        }
    }
    Ok(())
}

pub async fn remove(source: &Source, who: &str) -> anyhow::Result<()> {
    let (store, tenant) = open(source).await?;
    let found = store.find_member(&tenant, who).await?;
    let member = found.with_context(|| format!("{who:?} is no member: see `tidegate members list`"))?;
    if !store.remove_member(&tenant, &By::shell(SystemClock.now()), &member.id).await? {
        bail!("the member is gone");
    }
    store.close().await;
    say!("Removed {} and disabled their keys", shown(&member.email))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_refused() {
        for good in ["a@b", "ada.lovelace+x@example.com", "ä@example.com"] {
            assert!(is_address(good), "{good}");
        }
        let long = format!("{}@example.com", "a".repeat(250));
        for bad in ["", "a", "@b", "a@", "a b@c", "a@b@c", "a@b\n", &long] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
