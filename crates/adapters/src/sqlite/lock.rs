//! One process at a time: a lock on a file beside the database.
//!
//! The operating system frees it when its holder dies, however it dies. So a free lock proves that the previous process
//! is gone, and the file of a taken one names its holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use convoke_core::{Error, Result};

/// Held until it is dropped.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: File,
}

impl StoreLock {
    pub(super) fn take(database: &Path) -> Result<Self> {
        let path = beside(database, ".lock");
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(|error| {
                Error::unavailable("store", format!("cannot open the lock file {}: {error}", path.display()))
            })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(database, &path, &mut file)),
            Err(TryLockError::Error(error)) => {
                let message = format!("cannot lock {}: {error}", path.display());
                return Err(Error::unavailable("store", message));
            }
        }
        // The process id is only for people who read the file: the store opens without it.
        if let Err(error) = write_pid(&mut file) {
            tracing::warn!(path = %path.display(), %error, "could not write the process id into the lock file");
        }
        Ok(StoreLock { _file: file })
    }
}

fn write_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn held(database: &Path, lock: &Path, file: &mut File) -> Error {
    let mut text = String::new();
    let holder = match file.take(32).read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => format!("process {}", text.trim()),
        _ => "another process".into(),
    };
    Error::Conflict(format!("{} is in use by {holder}, which holds {}", database.display(), lock.display()))
}

/// Returns the path of a file that accompanies the database, named as SQLite names its own.
pub(super) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
