//! `tidegate members`: the people of the organisation from a shell.

use anyhow::{Context as _, bail};
use tidegate_core::Tenant;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_store::Store;
use tidegate_store::audit::By;
use tidegate_store::members::{Member, NewMember, Role};

use super::keys::open;
use super::out::{say, shown};
use crate::config::Source;
use crate::people;

pub struct Add {
    pub email: String,
    pub role: Role,
    pub first_name: Option<String>,
    pub last_name: Option<String>,
}

pub async fn add(source: &Source, options: Add) -> anyhow::Result<()> {
    if !people::is_address(&options.email) {
        bail!("--email must be an address such as ada@example.com");
    }
    for (option, name) in [("--first-name", &options.first_name), ("--last-name", &options.last_name)] {
        if name.as_deref().is_some_and(|name| !people::is_name(name)) {
            bail!("{option} must have 1 to {} characters", people::LONGEST_NAME);
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
    let member = named(&store, &tenant, who).await?;
    if !store.remove_member(&tenant, &By::shell(SystemClock.now()), &member.id).await? {
        bail!("the member is gone");
    }
    store.close().await;
    say!("Removed {} and disabled their keys", shown(&member.email))
}

pub async fn role(source: &Source, who: &str, role: Role) -> anyhow::Result<()> {
    let (store, tenant) = open(source).await?;
    let member = named(&store, &tenant, who).await?;
    if !store.set_member_role(&tenant, &By::shell(SystemClock.now()), &member.id, role).await? {
        bail!("the member is gone");
    }
    store.close().await;
    say!("{} is {} now", shown(&member.email), role.as_str())
}

async fn named(store: &Store, tenant: &Tenant, who: &str) -> anyhow::Result<Member> {
    let found = store.find_member(tenant, who).await?;
    found.with_context(|| format!("{who:?} is no member: see `tidegate members list`"))
}
