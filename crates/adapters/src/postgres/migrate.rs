//! Brings a database up to date.
//!
//! All in one transaction, which first takes a lock: of nodes that start at the same time one migrates, the others wait and
//! find it done. Fails where a newer version has migrated the database, and where it could not keep every text.

use convoke_core::{Error, Invalid, Result};
use tokio_postgres::{Client, Transaction};

use super::failure::{Failure, in_words};
use super::server::Server;
use super::url::quote;

/// Applied in order, once each.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_jobs.sql"), include_str!("migrations/0002_enqueue.sql")];

pub(super) async fn migrate(server: &Server) -> Result<()> {
    let mut client = server.greet().await?;
    check_encoding(&client).await?;
    if let Some(schema) = &server.address.schema
        && client
            .query_opt("select 1 from pg_namespace where nspname = $1", &[schema])
            .await
            .map_err(unavailable)?
            .is_none()
    {
        // Two that make it at once: one of them is refused, and finds it there.
        let made = client.batch_execute(&format!("create schema if not exists {}", quote(schema))).await;
        if let Err(error) = made
            && error.code().is_none_or(|code| !["23505", "42P06"].contains(&code.code()))
        {
            return Err(refused(server, &error));
        }
    }
    let found = match version(&client).await.map_err(unavailable)? {
        Some(found) if found >= MIGRATIONS.len() => found,
        _ => apply(&mut client).await.map_err(|error| refused(server, &error))?,
    };
    if found > MIGRATIONS.len() {
        let (shown, known) = (server.address.shown(), MIGRATIONS.len());
        return Err(Error::Conflict(format!(
            "{shown} was migrated by a newer version: its schema is {found}, the newest known here is {known}"
        )));
    }
    Ok(())
}

fn unavailable(error: tokio_postgres::Error) -> Error {
    Failure::from(error).told("store")
}

fn refused(server: &Server, error: &tokio_postgres::Error) -> Error {
    Error::unavailable("store", format!("{} cannot be migrated: {}", server.address.shown(), in_words(error)))
}

async fn check_encoding(client: &Client) -> Result<()> {
    let row = client.query_one("show server_encoding", &[]).await.map_err(unavailable)?;
    let encoding: String = row.try_get(0).map_err(unavailable)?;
    if encoding == "UTF8" {
        return Ok(());
    }
    Err(Invalid::new("store.url", format!("expected a database with the encoding UTF8, got {encoding}")).into())
}

/// How many migrations the database has, where it has any.
async fn version(client: &Client) -> Result<Option<usize>, tokio_postgres::Error> {
    let known = client.query_one("select to_regclass('convoke_migrations') is not null", &[]).await?;
    if !known.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let row = client.query_one("select coalesce(max(version), 0) from convoke_migrations", &[]).await?;
    Ok(Some(usize::try_from(row.try_get::<_, i32>(0)?).unwrap_or(0)))
}

async fn apply(client: &mut Client) -> Result<usize, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction
        .batch_execute("select pg_advisory_xact_lock(hashtext('convoke migrations ' || current_schema()))")
        .await?;
    // Functions remember the path: exactly the schema they are made in.
    transaction.batch_execute("select set_config('search_path', quote_ident(current_schema()), true)").await?;
    transaction
        .batch_execute(
            "create table if not exists convoke_migrations \
             (version int primary key, applied_at timestamptz not null default clock_timestamp())",
        )
        .await?;
    let found = migrated(&transaction).await?;
    for (number, migration) in (1i32..).zip(MIGRATIONS).skip(found) {
        transaction.batch_execute(migration).await?;
        transaction.execute("insert into convoke_migrations (version) values ($1)", &[&number]).await?;
    }
    transaction.commit().await?;
    Ok(found.max(MIGRATIONS.len()))
}

async fn migrated(transaction: &Transaction<'_>) -> Result<usize, tokio_postgres::Error> {
    let row = transaction.query_one("select count(*) from convoke_migrations", &[]).await?;
    Ok(usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0))
}
