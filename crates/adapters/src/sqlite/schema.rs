//! Opening a database file: its settings, and the migrations that bring it up to date.
//!
//! Errors name the file and the cause: a missing directory, a file that is not a database, a database of another
//! program, or one that a newer version has written.

use std::path::Path;
use std::time::Duration;

use convoke_core::{Error, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::statement::build;

/// Applied in order; `user_version` counts them.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_jobs.sql")];

/// "CNVK": marks a file as a database of Convoke.
const APPLICATION_ID: i32 = 0x434e_564b;

/// How long to wait for another process that writes: leases may share the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const STATEMENTS_CACHED: usize = 96;

/// Opens a connection that may write, to a file that is up to date. Creates the file if it is missing.
pub(super) fn open_writable(path: &Path, cache_kib: u32) -> Result<Connection> {
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    let set_up = |connection: &mut Connection| -> rusqlite::Result<()> {
        connection.pragma_update(None, "journal_mode", "wal")?;
        // Acknowledged writes survive a power cut.
        connection.pragma_update(None, "synchronous", "full")?;
        // Checkpoints have a thread of their own.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
        connection.pragma_update(None, "cache_size", -i64::from(cache_kib))?;
        connection.pragma_update(None, "temp_store", "memory")
    };
    check_ours(&connection, path)?;
    set_up(&mut connection).map_err(|error| describe(path, &error))?;
    migrate(&mut connection, path)?;
    Ok(connection)
}

/// Opens a read-only connection.
pub(super) fn open_read_only(path: &Path, cache_kib: u32) -> Result<Connection> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let set_up = || -> rusqlite::Result<()> {
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cache_size", -i64::from(cache_kib))
    };
    set_up().map_err(|error| describe(path, &error))?;
    Ok(connection)
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| describe(path, &error))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| describe(path, &error))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    Ok(connection)
}

/// Rejects a file of another program before anything in it is changed.
fn check_ours(connection: &Connection, path: &Path) -> Result<()> {
    let read = || -> rusqlite::Result<(i32, bool)> {
        let id = connection.pragma_query_value(None, "application_id", |row| row.get("application_id"))?;
        let has_tables =
            connection.query_row("select count(*) > 0 as is_used from sqlite_schema", [], |row| row.get("is_used"))?;
        Ok((id, has_tables))
    };
    let (id, has_tables) = read().map_err(|error| describe(path, &error))?;
    if id == APPLICATION_ID || (id == 0 && !has_tables) {
        return Ok(());
    }
    Err(Error::Conflict(format!("{} is a database of another program", path.display())))
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    // Usually there is nothing to do, and no need to wait for a writer.
    if version(connection).map_err(|error| describe(path, &error))? == MIGRATIONS.len() {
        return Ok(());
    }
    let mut apply = || -> rusqlite::Result<usize> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found = version(&transaction)?;
        for migration in MIGRATIONS.iter().skip(found) {
            transaction.execute_batch(&build(migration))?;
        }
        if found < MIGRATIONS.len() {
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", MIGRATIONS.len() as i64)?;
        }
        transaction.commit()?;
        Ok(found)
    };
    let found = apply().map_err(|error| describe(path, &error))?;
    if found > MIGRATIONS.len() {
        let (path, known) = (path.display(), MIGRATIONS.len());
        return Err(Error::Conflict(format!(
            "{path} was written by a newer version: its schema is {found}, the newest known here is {known}"
        )));
    }
    Ok(())
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get::<_, i64>("user_version"))
        .map(|found| found.max(0) as usize)
}

/// Describes an error by what a person can do about it.
pub(super) fn describe(path: &Path, error: &rusqlite::Error) -> Error {
    let shown = path.display();
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let message = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => return Error::Conflict(format!("{shown} is not a SQLite database")),
        Some(ErrorCode::DatabaseCorrupt) => return Error::Conflict(format!("{shown} is damaged: {error}")),
        Some(ErrorCode::ReadOnly) => format!("{shown} cannot be written: it, or its directory, is read-only"),
        Some(ErrorCode::CannotOpen) if path.is_dir() => format!("{shown} is a directory"),
        Some(ErrorCode::CannotOpen) if directory.is_some_and(|parent| !parent.exists()) => {
            format!("{shown} cannot be opened: its directory does not exist")
        }
        Some(ErrorCode::CannotOpen) => {
            format!("{shown} cannot be opened: the file must be readable and its directory writable")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => format!("{shown} is locked by another program"),
        _ => format!("{shown} cannot be opened: {error}"),
    };
    Error::unavailable("store", message)
}
