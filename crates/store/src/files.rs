//! Files of a workspace. What they hold is sealed like a credential: under a data key of its own, bound to the row and its
//! workspace, so that a new master key wraps the data keys again and leaves the contents alone.

mod seals;

use serde_json::json;
use tidegate_core::{FileId, Secret, Tenant, Timestamp, WorkspaceId};

use crate::audit::{By, Change, append_audit};
use crate::credentials::HOLD_CREDENTIALS;
use crate::error::Unreadable;
use crate::vault::{Binding, Sealed, Vault, VaultError};
use crate::{Refused, Result, Store, StoreError, dialect};

/// A file without its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow {
    pub id: FileId,
    pub workspace: WorkspaceId,
    pub filename: String,
    pub mime_type: String,
    pub purpose: Option<String>,
    pub size_bytes: u64,
    pub created: Timestamp,
}

/// A file that is to be kept.
pub struct NewFile<'a> {
    pub workspace: &'a WorkspaceId,
    pub filename: &'a str,
    pub mime_type: &'a str,
    pub purpose: Option<&'a str>,
    pub content: Secret,
}

/// What a workspace may keep in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub files: u64,
    pub bytes: u64,
}

/// Where a page of files begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum From {
    #[default]
    Start,
    /// Behind this one.
    After(FileId),
    /// So that it ends just before this one.
    Before(FileId),
}

/// A file as it was sealed, ready to be written.
pub struct SealedFile {
    row: FileRow,
    sealed: Sealed,
}

impl SealedFile {
    /// Seals a file. That is work for a processor, and is done before anything is locked.
    pub fn new(vault: &Vault, by: &By, new: NewFile<'_>) -> Result<Self> {
        let row = FileRow {
            id: FileId::new(by.at),
            workspace: new.workspace.clone(),
            filename: new.filename.to_owned(),
            mime_type: new.mime_type.to_owned(),
            purpose: new.purpose.map(ToOwned::to_owned),
            size_bytes: new.content.expose(<[u8]>::len) as u64,
            created: by.at,
        };
        let sealed = vault.seal(&binding(row.id.as_str(), &row.workspace.0), &new.content)?;
        Ok(Self { row, sealed })
    }
}

/// What the contents of a file are bound to.
fn binding<'a>(id: &'a str, workspace: &'a str) -> Binding<'a> {
    Binding { table: "files", column: "content", record: id, workspace, provider: "", destination: None }
}

/// The columns of [`Raw`], in its order.
macro_rules! select_files {
    () => {
        "SELECT id, workspace_id, filename, mime_type, purpose, size_bytes, created_at FROM files"
    };
}

impl Store {
    /// Keeps a file in a live workspace of the tenant, where that has room for it.
    pub async fn create_file(
        &self,
        tenant: &Tenant,
        by: &By,
        vault: &Vault,
        file: SealedFile,
        room: Room,
    ) -> Result<FileRow> {
        let SealedFile { row, mut sealed } = file;
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            // As long as this is held, no master key is given up.
            sqlx::query(HOLD_CREDENTIALS).execute(&mut *transaction).await?;
            vault.refresh_if_changed().await.map_err(VaultError::from)?;
            if let Some(now) = vault.rewrap(&binding(row.id.as_str(), &row.workspace.0), &sealed)? {
                sealed = now;
            }
            let (files, bytes): (i64, i64) = sqlx::query_as(
                "SELECT COUNT(*), CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM files \
                 WHERE organisation_id = $1 AND workspace_id = $2",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*row.workspace.0)
            .fetch_one(&mut *transaction)
            .await?;
            if u64::try_from(files).unwrap_or(0) >= room.files {
                return Err(Refused::TooManyFiles.into());
            }
            if u64::try_from(bytes).unwrap_or(0).saturating_add(row.size_bytes) > room.bytes {
                return Err(Refused::NoRoomForFile.into());
            }
            let inserted = sqlx::query(
                "INSERT INTO files (id, organisation_id, workspace_id, filename, mime_type, purpose, size_bytes, \
                 seal_version, master_key_id, wrapped_key, created_at) \
                 SELECT $1, organisation_id, id, $4, $5, $6, $7, $8, $9, $10, $11 \
                 FROM workspaces WHERE organisation_id = $2 AND id = $3 AND deleted_at IS NULL",
            )
            .bind(row.id.as_str())
            .bind(&*tenant.organisation.0)
            .bind(&*row.workspace.0)
            .bind(&row.filename)
            .bind(&row.mime_type)
            .bind(&row.purpose)
            .bind(i64::try_from(row.size_bytes).unwrap_or(i64::MAX))
            .bind(sealed.version)
            .bind(&*sealed.master_key)
            .bind(&sealed.wrapped_key)
            .bind(row.created.0)
            .execute(&mut *transaction)
            .await?;
            if inserted.rows_affected() == 0 {
                return Err(StoreError::Missing);
            }
            sqlx::query("INSERT INTO file_contents (file_id, ciphertext) VALUES ($1, $2)")
                .bind(row.id.as_str())
                .bind(&sealed.ciphertext)
                .execute(&mut *transaction)
                .await?;
            // Its name may tell what it is about, so it is not in the log.
            let values = json!({"workspace_id": &*row.workspace.0, "size_bytes": row.size_bytes});
            append_audit!(
                transaction,
                tenant.organisation,
                by,
                Change::new("file.created", row.id.as_str()).with(values)
            );
            transaction.commit().await?;
            Ok(row)
        })
    }

    /// A file of a workspace.
    pub async fn find_file(&self, tenant: &Tenant, workspace: &WorkspaceId, id: &FileId) -> Result<Option<FileRow>> {
        let raw: Option<Raw> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_files!(),
                " WHERE organisation_id = $1 AND workspace_id = $2 AND id = $3"
            ))
            .bind(&*tenant.organisation.0)
            .bind(&*workspace.0)
            .bind(id.as_str())
            .fetch_optional(pool)
            .await?)
        })?;
        raw.map(FileRow::try_from).transpose()
    }

    /// A page of a workspace's files, by the time they came, and whether there are more in the direction that was asked
    /// for.
    pub async fn list_files(
        &self,
        tenant: &Tenant,
        workspace: &WorkspaceId,
        from: From,
        oldest_first: bool,
        limit: u32,
    ) -> Result<(Vec<FileRow>, bool)> {
        let (bound, is_backwards) = match from {
            From::Start => (None, false),
            From::After(id) => (Some(id), false),
            From::Before(id) => (Some(id), true),
        };
        let bound = bound.as_ref().map(FileId::as_str);
        let statement = match oldest_first != is_backwards {
            true => concat!(
                select_files!(),
                " WHERE organisation_id = $1 AND workspace_id = $2 AND ($3 IS NULL OR id > $3) ORDER BY id LIMIT $4"
            ),
            false => concat!(
                select_files!(),
                " WHERE organisation_id = $1 AND workspace_id = $2 AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4"
            ),
        };
        let mut raw: Vec<Raw> = on_reader!(self, pool => {
            Ok(sqlx::query_as(statement)
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .bind(bound)
                .bind(i64::from(limit) + 1)
                .fetch_all(pool)
                .await?)
        })?;
        let has_more = raw.len() > limit as usize;
        raw.truncate(limit as usize);
        if is_backwards {
            raw.reverse();
        }
        Ok((raw.into_iter().map(FileRow::try_from).collect::<Result<_>>()?, has_more))
    }

    /// What a file holds, with the file itself; `None` when the workspace has no such one.
    pub async fn read_file(
        &self,
        tenant: &Tenant,
        workspace: &WorkspaceId,
        vault: &Vault,
        id: &FileId,
    ) -> Result<Option<(FileRow, Secret)>> {
        match self.find_file(tenant, workspace, id).await? {
            Some(row) => self.opened_file(vault, row).await,
            None => Ok(None),
        }
    }

    /// The same of any workspace: for addresses that we signed, which name nothing but the file.
    pub async fn read_any_file(&self, vault: &Vault, id: &FileId) -> Result<Option<(FileRow, Secret)>> {
        let raw: Option<Raw> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_files!(), " WHERE id = $1")).bind(id.as_str()).fetch_optional(pool).await?)
        })?;
        match raw.map(FileRow::try_from).transpose()? {
            Some(row) => self.opened_file(vault, row).await,
            None => Ok(None),
        }
    }

    async fn opened_file(&self, vault: &Vault, row: FileRow) -> Result<Option<(FileRow, Secret)>> {
        let id = &row.id;
        let Some(sealed) = self.sealed_file(id).await? else { return Ok(None) };
        let binding = binding(row.id.as_str(), &row.workspace.0);
        let content = match vault.open(&binding, &sealed) {
            Ok(content) => content,
            // Another process may have put a new key in front of the ring.
            Err(VaultError::UnknownMasterKey(_)) => {
                vault.refresh().await.map_err(VaultError::from)?;
                vault.open(&binding, &sealed)?
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Some((row, content)))
    }

    async fn sealed_file(&self, id: &FileId) -> Result<Option<Sealed>> {
        let raw: Option<(i64, String, Vec<u8>, Vec<u8>)> = on_reader!(self, pool => {
            Ok(sqlx::query_as(
                "SELECT seal_version, master_key_id, wrapped_key, ciphertext FROM files \
                 JOIN file_contents ON file_id = id WHERE id = $1",
            )
            .bind(id.as_str())
            .fetch_optional(pool)
            .await?)
        })?;
        Ok(raw.map(|(version, master_key, wrapped_key, ciphertext)| Sealed {
            version,
            master_key: master_key.into(),
            wrapped_key,
            ciphertext,
        }))
    }

    /// Takes a file away; whether the workspace had it.
    pub async fn delete_file(&self, tenant: &Tenant, by: &By, workspace: &WorkspaceId, id: &FileId) -> Result<bool> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let ours: Option<String> = sqlx::query_scalar(
                "SELECT id FROM files WHERE organisation_id = $1 AND workspace_id = $2 AND id = $3",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*workspace.0)
            .bind(id.as_str())
            .fetch_optional(&mut *transaction)
            .await?;
            if ours.is_none() {
                return Ok(false);
            }
            sqlx::query("DELETE FROM file_contents WHERE file_id = $1")
                .bind(id.as_str())
                .execute(&mut *transaction)
                .await?;
            let gone = sqlx::query("DELETE FROM files WHERE id = $1").bind(id.as_str()).execute(&mut *transaction).await?;
            // Of two who take it away at once, one did.
            if gone.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit!(transaction, tenant.organisation, by, Change::new("file.deleted", id.as_str()));
            transaction.commit().await?;
            Ok(true)
        })
    }
}

#[derive(sqlx::FromRow)]
struct Raw {
    id: String,
    workspace_id: String,
    filename: String,
    mime_type: String,
    purpose: Option<String>,
    size_bytes: i64,
    created_at: i64,
}

impl TryFrom<Raw> for FileRow {
    type Error = StoreError;

    fn try_from(raw: Raw) -> Result<Self> {
        Ok(Self {
            id: FileId::parse(&raw.id).ok_or(Unreadable { table: "files", column: "id" })?,
            workspace: WorkspaceId(raw.workspace_id.into()),
            filename: raw.filename,
            mime_type: raw.mime_type,
            purpose: raw.purpose,
            size_bytes: u64::try_from(raw.size_bytes).unwrap_or(0),
            created: Timestamp(raw.created_at),
        })
    }
}
