//! The people of the organisation: who they are, what they may, and who leaves.

use askama::Template;
use tidegate_gateway::Failure;
use tidegate_store::StoreError;
use tidegate_store::members::{Member, NewMember, Role};

use super::words::instant;
use super::{Frame, Viewer, page, see_other};
use crate::api::account::{internal, not_found};
use crate::api::form::Query;
use crate::people;
use crate::router::Answer;

const HERE: &str = "/dashboard/members";
const SHOWN: u32 = 500;

#[derive(Template)]
#[template(path = "dashboard/members.html")]
struct Page<'a> {
    frame: Frame,
    rows: Vec<Row>,
    total: u64,
    /// Whether there are more than are shown.
    is_cut: bool,
    /// What people sign in with besides management keys.
    issuer: Option<&'a str>,
    /// What was typed, where something is wrong with it.
    typed: Typed,
}

#[derive(Default)]
struct Typed {
    email: String,
    first_name: String,
    last_name: String,
    is_admin: bool,
}

struct Row {
    id: String,
    email: String,
    name: String,
    is_admin: bool,
    is_viewer: bool,
    since: String,
}

pub(super) async fn show(mut viewer: Viewer) -> Result<Answer, Failure> {
    let said = match viewer.query.text("done").as_deref() {
        Some("add") => Some("They are a member now."),
        Some("admin") => Some("They are an administrator now."),
        Some("member") => Some("They are no longer an administrator."),
        Some("remove") => Some("They are no longer a member, and their keys are switched off."),
        _ => None,
    };
    shown(&viewer, Ok(said.map(str::to_owned)), Typed::default()).await
}

async fn shown(viewer: &Viewer, said: Result<Option<String>, String>, typed: Typed) -> Result<Answer, Failure> {
    let (members, total) = viewer.app.store.list_members(&viewer.tenant, 0, SHOWN).await.map_err(internal)?;
    let user = viewer.session.user();
    let page_of = Page {
        frame: viewer.frame(HERE).with(said),
        rows: members.into_iter().map(|member| row(member, user)).collect(),
        total,
        is_cut: total > u64::from(SHOWN),
        issuer: viewer.app.oidc.as_ref().map(|door| door.settings.name.as_str()),
        typed,
    };
    page(page_of.frame.status(), &page_of, None)
}

fn row(member: Member, viewer: Option<&str>) -> Row {
    let names = [member.first_name, member.last_name];
    Row {
        name: names.into_iter().flatten().collect::<Vec<_>>().join(" "),
        is_admin: member.role == Role::Admin,
        is_viewer: viewer == Some(&member.id),
        since: instant(member.created),
        email: member.email,
        id: member.id,
    }
}

pub(super) async fn change(viewer: Viewer, mut form: Query) -> Result<Answer, Failure> {
    let action = form.text("action").unwrap_or_default();
    if action == "add" {
        return add(viewer, form).await;
    }
    let id = form.text("id").ok_or_else(not_found)?;
    if viewer.session.user() == Some(&id) {
        let problem = "You cannot take your own place away. Another administrator can.";
        return shown(&viewer, Err(problem.to_owned()), Typed::default()).await;
    }
    let (store, tenant, by) = (&viewer.app.store, &viewer.tenant, &viewer.by);
    let changed = match (action.as_str(), Role::parse(&action)) {
        ("remove", _) => store.remove_member(tenant, by, &id).await,
        (_, Some(role)) => store.set_member_role(tenant, by, &id, role).await,
        (_, None) => return Err(not_found()),
    };
    if !changed.map_err(internal)? {
        return Err(not_found());
    }
    viewer.app.keys_changed().await;
    see_other(&format!("{HERE}?done={action}"))
}

async fn add(viewer: Viewer, mut form: Query) -> Result<Answer, Failure> {
    let mut typed = |name| form.text(name).unwrap_or_default().trim().to_owned();
    let is_admin = typed("role") == Role::Admin.as_str();
    let typed =
        Typed { email: typed("email"), first_name: typed("first_name"), last_name: typed("last_name"), is_admin };
    if !people::is_address(&typed.email) {
        return shown(&viewer, Err("Address: must be one such as ada@example.com.".to_owned()), typed).await;
    }
    let optional = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
    let (first_name, last_name) = (optional(&typed.first_name), optional(&typed.last_name));
    if [&first_name, &last_name].into_iter().flatten().any(|name| !people::is_name(name)) {
        return shown(&viewer, Err(format!("Name: must have at most {} characters.", people::LONGEST_NAME)), typed)
            .await;
    }
    let role = if is_admin { Role::Admin } else { Role::Member };
    let new = NewMember { email: typed.email.clone(), first_name, last_name, role };
    match viewer.app.store.add_member(&viewer.tenant, &viewer.by, new).await {
        Ok(_) => see_other(&format!("{HERE}?done=add")),
        Err(StoreError::Refused(rule)) => shown(&viewer, Err(format!("Address: {rule}.")), typed).await,
        Err(error) => Err(internal(error)),
    }
}
