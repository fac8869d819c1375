//! Room that is kept free for the worst moment: a file that is thrown away when the disk is full, so that the calls which
//! are under way can still be settled.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

pub const BALLAST_BYTES: u64 = 16 << 20;
const FILE: &str = "ledger.ballast";

#[derive(Clone, Debug)]
pub struct Ballast(PathBuf);

impl Ballast {
    pub fn of(folder: &Path) -> Self {
        Self(folder.join(FILE))
    }

    /// Takes the room, unless it is taken already.
    pub fn take(&self) -> io::Result<()> {
        if fs::metadata(&self.0).is_ok_and(|known| known.len() == BALLAST_BYTES) {
            return Ok(());
        }
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&self.0)?;
        let taken = Self::fill(&file);
        if taken.is_err() {
            // Half of it would be neither room for us nor room for others.
            let _ = fs::remove_file(&self.0);
        }
        taken
    }

    fn fill(file: &File) -> io::Result<()> {
        match fallocate(file, FallocateFlags::empty(), 0, BALLAST_BYTES) {
            // Not every file system can promise room; then bytes are written.
            Err(rustix::io::Errno::OPNOTSUPP) => {
                io::copy(&mut io::Read::take(io::repeat(0), BALLAST_BYTES), &mut &*file).map(|_| ())
            }
            taken => taken.map_err(Into::into),
        }
    }

    /// Gives the room back; whether there was any.
    pub fn give(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }

    pub fn is_taken(&self) -> bool {
        self.0.exists()
    }
}
