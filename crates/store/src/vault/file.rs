//! The ring as a file, which is the one source that we write to: its first key, a new active one, old ones removed.
//!
//! A file is never changed in place. The new one is written beside it, made durable and renamed over it, so that at any
//! moment, and after a power cut, one whole ring stands there.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidegate_core::{Secret, id};
use zeroize::Zeroizing;

use super::ring::{KEY_BYTES, MasterRing, RingError};
use super::source::{self, MasterKeySource};

const KEY_CHARACTERS: usize = KEY_BYTES.div_ceil(3) * 4;

/// Puts a fresh key before all others, which makes it the active one, and returns its id. What else is in the file,
/// remarks included, stays as it is.
pub fn add_active_key(path: &Path) -> Result<Box<str>, RingError> {
    let ring_file = RingFile::lock(path)?;
    let name = ring_file.unused_name();
    let line = fresh_line(&name);
    ring_file.replace(line.expose(|line| ring_file.text.expose(|old| Secret::new([line, old].concat()))))?;
    Ok(name.into())
}

/// Puts a fresh key behind all others, where nothing is sealed under it yet, and returns its id.
pub fn add_key(path: &Path) -> Result<Box<str>, RingError> {
    let ring_file = RingFile::lock(path)?;
    let name = ring_file.unused_name();
    let line = fresh_line(&name);
    ring_file.replace(line.expose(|line| {
        ring_file.text.expose(|old| {
            let end: &[u8] = if old.ends_with(b"\n") { b"" } else { b"\n" };
            Secret::new([old, end, line].concat())
        })
    }))?;
    Ok(name.into())
}

/// Moves a key before all others, which makes it the active one.
pub fn activate_key(path: &Path, id: &str) -> Result<(), RingError> {
    let ring_file = RingFile::lock(path)?;
    if ring_file.ring.get(id).is_none() {
        return Err(ring_file.refuse(format!("the key {id} is not there any more")));
    }
    let text = ring_file.text.expose(|text| {
        let is_it = |line: &&[u8]| word(line) == id.as_bytes();
        let lines = || text.split_inclusive(|byte| *byte == b'\n');
        let mut moved = Vec::with_capacity(text.len() + 1);
        for line in lines().filter(is_it).chain(lines().filter(|line| !is_it(line))) {
            moved.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                moved.push(b'\n');
            }
        }
        Secret::new(moved)
    });
    ring_file.replace(text)
}

/// Removes keys; the active one is refused. Whether something is still sealed under them, the caller must know. An id
/// that is not in the ring is passed over, so that a removal can be repeated after it was cut short.
pub fn remove_keys(path: &Path, ids: &[&str]) -> Result<(), RingError> {
    let ring_file = RingFile::lock(path)?;
    let active = &*ring_file.ring.active().id;
    if ids.contains(&active) {
        return Err(ring_file.refuse(format!("the key {active} is the active one: add another before it is removed")));
    }
    let gone: Vec<&str> = ids.iter().copied().filter(|id| ring_file.ring.get(id).is_some()).collect();
    if gone.is_empty() {
        return Ok(());
    }
    let text = ring_file.text.expose(|text| {
        // Room for all of it from the start, so that no grown-out-of buffer is left behind unwiped.
        let mut kept = Vec::with_capacity(text.len());
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if !gone.iter().any(|id| id.as_bytes() == word(line)) {
                kept.extend_from_slice(line);
            }
        }
        Secret::new(kept)
    });
    ring_file.replace(text)
}

/// The first word of a line: the id of its key.
fn word(line: &[u8]) -> &[u8] {
    line.trim_ascii().split(u8::is_ascii_whitespace).next().unwrap_or_default()
}

/// Makes the file with one fresh key; it must not exist.
pub(super) fn create(path: &Path) -> io::Result<()> {
    write_new(path, &fresh_line(&fresh_name()), None)?;
    // The name of the file must survive a power cut as surely as what is sealed under its key.
    sync_folder(path)
}

/// A ring file that nobody else rewrites as long as this lives.
struct RingFile {
    /// Without links, for a rename would replace a link and leave the file that it points to.
    path: PathBuf,
    text: Secret,
    ring: MasterRing,
    locked: File,
}

impl RingFile {
    /// Two that rewrite at a time would lose a key, and with it whatever was sealed under it.
    fn lock(path: &Path) -> Result<Self, RingError> {
        let place = MasterKeySource::File(path.to_owned()).to_string();
        let refuse = |reason| RingError::Source { place: place.clone(), reason };
        let failed = |error: io::Error| refuse(format!("cannot read the file: {error}"));
        let path = path.canonicalize().map_err(failed)?;
        loop {
            let locked = File::open(&path).map_err(failed)?;
            locked.lock().map_err(|error| refuse(format!("cannot lock the file: {error}")))?;
            // While we waited, the one before us may have put another file in its place.
            let (ours, now) = (locked.metadata().map_err(failed)?, path.metadata().map_err(failed)?);
            if (ours.dev(), ours.ino()) == (now.dev(), now.ino()) {
                let text = source::read_file(&path).map_err(refuse)?;
                let ring = MasterRing::parse(&text, &place)?;
                return Ok(Self { path, text, ring, locked });
            }
        }
    }

    fn unused_name(&self) -> String {
        let mut name = fresh_name();
        while self.ring.get(&name).is_some() {
            name = fresh_name();
        }
        name
    }

    fn replace(&self, text: Secret) -> Result<(), RingError> {
        // What could not be read again must not replace what can.
        let text = source::within_size(text).map_err(|reason| self.refuse(reason))?;
        MasterRing::parse(&text, &self.place())?;
        self.write(&text).map_err(|error| self.refuse(format!("cannot rewrite the file: {error}")))
    }

    fn write(&self, text: &Secret) -> io::Result<()> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = self.path.with_file_name(name);
        // Left by one that was killed; the lock says that nobody is writing it.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        write_new(&new, text, Some(&self.locked))?;
        if let Err(error) = std::fs::rename(&new, &self.path) {
            let _ = std::fs::remove_file(&new);
            return Err(error);
        }
        sync_folder(&self.path)
    }

    fn refuse(&self, reason: String) -> RingError {
        RingError::Source { place: self.place(), reason }
    }

    fn place(&self) -> String {
        MasterKeySource::File(self.path.clone()).to_string()
    }
}

/// A file for its owner alone, durable when this returns. It gets the owner of the file that it will replace: a
/// rotation run by root must not take the ring away from the server.
fn write_new(path: &Path, text: &Secret, replaced: Option<&File>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut write = || {
        if let Some(replaced) = replaced {
            let (ours, theirs) = (file.metadata()?, replaced.metadata()?);
            if ours.uid() != theirs.uid() {
                fchown(&file, Some(theirs.uid()), Some(theirs.gid()))?;
            }
        }
        text.expose(|text| file.write_all(text))?;
        file.sync_all()
    };
    let written = write();
    if written.is_err() {
        // Half a ring would be refused at every later start.
        let _ = std::fs::remove_file(path);
    }
    written
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(folder)?.sync_all()
}

fn fresh_name() -> String {
    let digits: String = id::random::<4>().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("k{digits}")
}

fn fresh_line(name: &str) -> Secret {
    let key = Secret::new(id::random::<KEY_BYTES>());
    let mut encoded = Zeroizing::new([0_u8; KEY_CHARACTERS]);
    let length = key.expose(|key| STANDARD.encode_slice(key, &mut encoded[..]));
    let length = length.expect("the buffer is as long as the encoded key");
    Secret::new([name.as_bytes(), b" ", &encoded[..length], b"\n"].concat())
}

#[cfg(test)]
mod tests;
