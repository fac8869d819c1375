//! Files of a workspace: what callers send, and what models write. Both come through here, so that they are held to the
//! same limits.

mod inline;
mod signed;

use std::sync::Arc;

use tidegate_core::{FileId, Secret, Tenant};
use tidegate_store::audit::By;
use tidegate_store::files::{FileRow, From, NewFile, Room, SealedFile};
use tidegate_store::{Refused, Result as Stored, StoreError};

use crate::Gateway;
use crate::keys::KeyEntry;
pub use signed::Broken;

/// Characters of a name at most.
const LONGEST_NAME: usize = 255;

/// How much may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a file.
    pub file_bytes: usize,
    /// Of all files of a workspace together.
    pub room: Room,
}

/// What a form may hold beside the file: the heads of its parts, and members of other clients.
const AROUND: usize = 64 << 10;

impl Limits {
    /// Bytes of the form that a file comes in.
    pub fn form_bytes(&self) -> usize {
        self.file_bytes + AROUND
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { file_bytes: 32 << 20, room: Room { files: 10_000, bytes: 1 << 30 } }
    }
}

/// Why a file is not kept, in words that fit behind what is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("must be 1 to {LONGEST_NAME} characters without slashes, backslashes and control characters")]
    Name,
    #[error("must have at most {0} bytes")]
    TooLarge(usize),
    #[error("cannot be kept: the workspace {0}; delete files that are not needed any more")]
    Full(Refused),
    #[error("cannot be kept at the moment")]
    Store(#[source] StoreError),
}

/// A file that is to be kept.
pub struct Given<'a> {
    pub filename: &'a str,
    pub mime_type: &'a str,
    pub purpose: Option<&'a str>,
    pub content: Vec<u8>,
}

impl Gateway {
    /// Keeps a file in the workspace of a key.
    pub async fn keep_file(self: &Arc<Self>, key: &KeyEntry, by: &By, given: Given<'_>) -> Result<FileRow, Problem> {
        let limits = self.snapshot().settings.files;
        let fits = |name: &str| {
            (1..=LONGEST_NAME).contains(&name.chars().count())
                && !name.chars().any(|one| one.is_control() || one == '/' || one == '\\')
        };
        if !fits(given.filename) {
            return Err(Problem::Name);
        }
        if given.content.len() > limits.file_bytes {
            return Err(Problem::TooLarge(limits.file_bytes));
        }
        let (vault, workspace, by) = (self.vault.clone(), key.workspace.clone(), by.clone());
        let (filename, mime_type) = (given.filename.to_owned(), given.mime_type.to_owned());
        let (purpose, content) = (given.purpose.map(ToOwned::to_owned), Secret::new(given.content));
        let sealing = {
            let (vault, by) = (vault.clone(), by.clone());
            move || {
                let new = NewFile {
                    workspace: &workspace,
                    filename: &filename,
                    mime_type: &mime_type,
                    purpose: purpose.as_deref(),
                    content,
                };
                SealedFile::new(&vault, &by, new)
            }
        };
        // A large one takes a while.
        let sealed = match tokio::task::spawn_blocking(sealing).await {
            Ok(sealed) => sealed.map_err(Problem::Store)?,
            Err(error) => return Err(Problem::Store(StoreError::Unavailable(Box::new(error)))),
        };
        let kept = self.keys.store().create_file(&tenant(key), &by, &vault, sealed, limits.room).await;
        kept.map_err(|error| match error {
            StoreError::Refused(rule) => Problem::Full(rule),
            error => Problem::Store(error),
        })
    }

    /// A file of a key's workspace.
    pub async fn find_file(&self, key: &KeyEntry, id: &FileId) -> Stored<Option<FileRow>> {
        self.keys.store().find_file(&tenant(key), &key.workspace, id).await
    }

    /// The same with what it holds.
    pub async fn read_file(&self, key: &KeyEntry, id: &FileId) -> Stored<Option<(FileRow, Secret)>> {
        self.keys.store().read_file(&tenant(key), &key.workspace, &self.vault, id).await
    }

    pub async fn list_files(
        &self,
        key: &KeyEntry,
        from: From,
        oldest_first: bool,
        limit: u32,
    ) -> Stored<(Vec<FileRow>, bool)> {
        self.keys.store().list_files(&tenant(key), &key.workspace, from, oldest_first, limit).await
    }

    pub async fn delete_file(&self, key: &KeyEntry, by: &By, id: &FileId) -> Stored<bool> {
        self.keys.store().delete_file(&tenant(key), by, &key.workspace, id).await
    }
}

fn tenant(key: &KeyEntry) -> Tenant {
    Tenant { organisation: key.organisation.clone() }
}
