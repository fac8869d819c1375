//! The sandbox that commands of models run in, from what was written about it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tidegate_tools::sandbox::engine::Engine;
use tidegate_tools::sandbox::{Place, Sandbox, Service};

use super::lines::Lines;
use super::search::dollars;
use super::{Source, raw, secret};

/// Containers of an engine at a time, when nothing is said: each may take a gibibyte.
const CONTAINERS: usize = 16;
const MOST_CONTAINERS: usize = 1_000;

pub fn read(raw: &raw::Sandbox, lines: &Lines, source: &Source) -> anyhow::Result<Option<Arc<Sandbox>>> {
    let sandbox = sandbox(raw, source).map_err(|(member, problem)| {
        let path = format!("tools.sandbox.{member}");
        lines.named(&path, problem.context(path.clone()))
    })?;
    Ok(sandbox.map(Arc::new))
}

type Mistake = (&'static str, anyhow::Error);

fn sandbox(raw: &raw::Sandbox, source: &Source) -> Result<Option<Sandbox>, Mistake> {
    let wrong = |member: &'static str| move |problem: anyhow::Error| (member, problem);
    let place = match raw.backend.as_str() {
        "none" => return Ok(None),
        "http" => Place::Service(service(raw, source)?),
        "docker" => Place::Engine(Arc::new(engine(raw, "/run/docker.sock")?)),
        "podman" => Place::Engine(Arc::new(engine(raw, "/run/podman/podman.sock")?)),
        other => return Err(("backend", anyhow::anyhow!("{other:?} is none of none, docker, podman, http"))),
    };
    let price_per_second = dollars(raw.price_per_second.as_ref()).map_err(wrong("price_per_second"))?;
    Ok(Some(Sandbox { place, price_per_second }))
}

fn service(raw: &raw::Sandbox, source: &Source) -> Result<Service, Mistake> {
    let wrong = |member: &'static str| move |problem: anyhow::Error| (member, problem);
    let of_engines = [
        ("socket", raw.socket.is_some()),
        ("image", raw.image.is_some()),
        ("runtime", raw.runtime.is_some()),
        ("max_containers", raw.max_containers.is_some()),
    ];
    if let Some((member, _)) = of_engines.into_iter().find(|(_, is_given)| *is_given) {
        return Err((member, anyhow::anyhow!("is for backend = \"docker\" and \"podman\"")));
    }
    let hosts = match raw.network.as_str() {
        "off" if raw.allowed_hosts.is_empty() => Vec::new(),
        "off" => return Err(("allowed_hosts", anyhow::anyhow!("needs network = \"allowlist\""))),
        "allowlist" => raw.allowed_hosts.clone(),
        other => return Err(("network", anyhow::anyhow!("{other:?} is none of off, allowlist"))),
    };
    let key = raw.api_key.as_deref().map(|text| secret::resolve(text, source)).transpose();
    Ok(Service { url: address(raw.url.as_deref()).map_err(wrong("url"))?, key: key.map_err(wrong("api_key"))?, hosts })
}

fn engine(raw: &raw::Sandbox, socket: &str) -> Result<Engine, Mistake> {
    let of_services = [("url", raw.url.is_some()), ("api_key", raw.api_key.is_some())];
    if let Some((member, _)) = of_services.into_iter().find(|(_, is_given)| *is_given) {
        return Err((member, anyhow::anyhow!("is for backend = \"http\"; the engine is reached by its socket")));
    }
    if raw.network != "off" || !raw.allowed_hosts.is_empty() {
        let problem = "containers of an engine have no network; a list of hosts needs backend = \"http\"";
        return Err(("network", anyhow::anyhow!(problem)));
    }
    if raw.runtime.is_some() && raw.backend == "podman" {
        let problem = "is for Docker; Podman's service takes its own from containers.conf";
        return Err(("runtime", anyhow::anyhow!(problem)));
    }
    let socket = PathBuf::from(raw.socket.as_deref().unwrap_or(socket));
    if !socket.is_absolute() {
        return Err(("socket", anyhow::anyhow!("must be the absolute path of a socket, such as /run/docker.sock")));
    }
    let image = raw.image.as_deref().unwrap_or_default().trim();
    if image.is_empty() {
        let problem =
            "needed: the image of containers, such as docker.io/library/python:3-slim; it has to be there already";
        return Err(("image", anyhow::anyhow!(problem)));
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    if !image.bytes().all(fits) {
        let problem = format!("{image:?} is no name of an image, such as docker.io/library/python:3-slim");
        return Err(("image", anyhow::anyhow!(problem)));
    }
    let most = raw.max_containers.unwrap_or(CONTAINERS);
    if !(1..=MOST_CONTAINERS).contains(&most) {
        return Err(("max_containers", anyhow::anyhow!("must be between 1 and {MOST_CONTAINERS}")));
    }
    if raw.runtime.as_ref().is_some_and(|runtime| runtime.trim().is_empty()) {
        return Err(("runtime", anyhow::anyhow!("must be a name such as runsc, or not be there")));
    }
    Ok(Engine { socket, image: image.to_owned(), runtime: raw.runtime.clone(), most })
}

fn address(given: Option<&str>) -> anyhow::Result<String> {
    let text = given.context("needed: the address of your service")?;
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let is_plain = |url: &url::Url| {
        url.host_str().is_some() && url.query().is_none() && url.fragment().is_none() && url.username().is_empty()
    };
    ensure!(
        url.as_ref().is_some_and(is_plain),
        "must be an address such as http://sandbox.internal:8700, without a query or a user"
    );
    Ok(text.trim_end_matches('/').to_owned())
}
