//! What workspaces choose for requests that leave it open: whole in memory, so that no request waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;
use tidegate_core::WorkspaceId;
use tidegate_routing::Sort;
use tidegate_store::{Store, StoreError};

use crate::failure::Failure;

/// Stands for the model that a workspace has chosen.
const DEFAULT: &str = "default";

/// What is wanted of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Text,
    Images,
}

#[derive(Debug)]
struct Chosen {
    text: Option<Arc<str>>,
    images: Option<Arc<str>>,
    sort: Option<Sort>,
}

pub struct Choices {
    store: Arc<Store>,
    seen: AtomicI64,
    chosen: ArcSwap<HashMap<WorkspaceId, Chosen>>,
}

impl Choices {
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, seen: AtomicI64::new(-1), chosen: ArcSwap::default() }
    }

    /// Takes over what changed in the store since the last call.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        if self.store.choices_seq().await? == self.seen.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (seq, all) = self.store.all_choices().await?;
        let chosen = all.into_iter().map(|(workspace, choices)| {
            let (text, images) = (choices.text_model.map(Arc::from), choices.image_model.map(Arc::from));
            (workspace, Chosen { text, images, sort: choices.sort.as_deref().and_then(Sort::parse) })
        });
        self.chosen.store(Arc::new(chosen.collect()));
        self.seen.store(seq, Ordering::SeqCst);
        Ok(())
    }

    /// How a workspace wants endpoints sorted for requests that do not say it.
    pub(crate) fn sort(&self, workspace: &WorkspaceId) -> Option<Sort> {
        let all = self.chosen.load();
        // Nobody chooses anything in most deployments: then this is one look.
        if all.is_empty() { None } else { all.get(workspace)?.sort }
    }

    /// The model that `default` stands for, where a request says it.
    pub(crate) fn model(
        &self,
        workspace: &WorkspaceId,
        names: &[&str],
        made: Made,
    ) -> Result<Option<Arc<str>>, Failure> {
        if !names.iter().any(|name| name.trim() == DEFAULT) {
            return Ok(None);
        }
        let all = self.chosen.load();
        let chosen = all.get(workspace);
        let (model, setting) = match made {
            Made::Text => (chosen.and_then(|chosen| chosen.text.clone()), "default_text_model"),
            Made::Images => (chosen.and_then(|chosen| chosen.images.clone()), "default_image_model"),
        };
        let unset = || Failure::invalid(format!("Invalid request: model 'default' needs a {setting} in the workspace"));
        model.map(Some).ok_or_else(unset)
    }
}
