//! Brings a database up to date: its tables by migrations, which are applied once each, and its functions, which are
//! replaced if their text differs from the installed one.
//!
//! All in one transaction, which first takes a lock: of nodes that start at the same time one migrates, the others wait
//! and find it done. A start that finds nothing to do writes nothing. Fails if a newer version has migrated the
//! database, or if its encoding cannot store every text.

use std::collections::HashMap;

use convoke_core::jobs::{Priority, RetryPolicy, RetrySettings};
use convoke_core::{Error, Invalid, Result};
use tokio_postgres::{Client, GenericClient};

use super::failure::{Failure, in_words};
use super::server::Server;
use super::url::quote;
use crate::statement::{build, build_with};

/// Applied in order, once each.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_tables.sql"), include_str!("migrations/0002_bus.sql")];

const FUNCTIONS: &str = concat!(include_str!("functions/store.sql"), include_str!("functions/enqueue.sql"));

/// Migrates the tables, and installs the functions if it is for a store: `convoke_enqueue` gives jobs these defaults.
pub(super) async fn migrate(server: &Server, defaults: Option<&RetrySettings>) -> Result<()> {
    let mut client = server.greet().await?;
    check_encoding(&client).await?;
    if let Some(schema) = &server.address.schema
        && client
            .query_opt("select 1 from pg_namespace where nspname = $1", &[schema])
            .await
            .map_err(unavailable)?
            .is_none()
    {
        // Of two nodes that create it at once, one is rejected, and finds it there.
        let made = client.batch_execute(&format!("create schema if not exists {}", quote(schema))).await;
        if let Err(error) = made
            && error.code().is_none_or(|code| !["23505", "42P06"].contains(&code.code()))
        {
            return Err(refused(server, &error));
        }
    }
    let functions = defaults.map(functions);
    if !is_done(&client, functions.as_deref()).await.map_err(unavailable)? {
        apply(&mut client, functions.as_deref()).await.map_err(|error| refused(server, &error))?;
    }
    let found = version(&client).await.map_err(unavailable)?;
    if found > MIGRATIONS.len() {
        let (shown, known) = (server.address.shown(), MIGRATIONS.len());
        return Err(Error::Conflict(format!(
            "{shown} was migrated by a newer version: its schema is {found}, the newest known here is {known}"
        )));
    }
    Ok(())
}

/// Returns the text of the functions, with the limits and the defaults in it.
fn functions(defaults: &RetrySettings) -> String {
    let policy = |policy: &RetryPolicy| serde_json::to_string(policy).unwrap_or_default();
    build_with(
        FUNCTIONS,
        &HashMap::from([
            ("default_retries", defaults.max_retries.to_string()),
            ("default_policy", policy(&defaults.policy())),
            ("built_in_retries", RetrySettings::default().max_retries.to_string()),
            ("built_in_policy", policy(&RetrySettings::default().policy())),
            ("built_in_priority", Priority::default().code().to_string()),
        ]),
    )
}

/// Returns the statement that drops Convoke functions with the signature of another version.
fn drop_others() -> String {
    let names =
        FUNCTIONS.lines().filter_map(|line| line.strip_prefix("create or replace function ")?.split('(').next());
    let names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    build_with(include_str!("functions/drop_others.sql"), &HashMap::from([("names", names.join(", "))]))
}

fn unavailable(error: tokio_postgres::Error) -> Error {
    Failure::from(error).into_error("store")
}

fn refused(server: &Server, error: &tokio_postgres::Error) -> Error {
    Error::unavailable("store", format!("migrating {} failed: {}", server.address.shown(), in_words(error)))
}

async fn check_encoding(client: &Client) -> Result<()> {
    let row = client.query_one("show server_encoding", &[]).await.map_err(unavailable)?;
    let encoding: String = row.try_get("server_encoding").map_err(unavailable)?;
    if encoding == "UTF8" {
        return Ok(());
    }
    Err(Invalid::new("store.url", format!("expected a database with the encoding UTF8, got {encoding}")).into())
}

type Asked<T> = Result<T, tokio_postgres::Error>;

/// Returns whether there is nothing to apply. Functions of a newer version are left as they are.
async fn is_done(client: &Client, functions: Option<&str>) -> Asked<bool> {
    let found = version(client).await?;
    let is_done = found > MIGRATIONS.len()
        || found == MIGRATIONS.len()
            && match functions {
                Some(functions) => is_installed(client, functions).await?,
                None => true,
            };
    Ok(is_done)
}

/// Returns how many migrations the database has.
async fn version(client: &impl GenericClient) -> Asked<usize> {
    let known = "select to_regclass('convoke_migrations') is not null as known";
    if !client.query_one(known, &[]).await?.try_get::<_, bool>("known")? {
        return Ok(0);
    }
    let row = client.query_one("select coalesce(max(version), 0) as version from convoke_migrations", &[]).await?;
    Ok(usize::try_from(row.try_get::<_, i32>("version")?).unwrap_or(0))
}

async fn is_installed(client: &impl GenericClient, functions: &str) -> Asked<bool> {
    let same = "select 1 from convoke_functions where hash = md5($1)";
    Ok(client.query_opt(same, &[&functions]).await?.is_some())
}

async fn apply(client: &mut Client, functions: Option<&str>) -> Asked<()> {
    let transaction = client.transaction().await?;
    transaction
        .batch_execute("select pg_advisory_xact_lock(hashtext('convoke migrations ' || current_schema()))")
        .await?;
    // Functions store the path: exactly the schema in which they are created.
    transaction.batch_execute("select set_config('search_path', quote_ident(current_schema()), true)").await?;
    transaction
        .batch_execute(
            "create table if not exists convoke_migrations \
             (version int primary key, applied_at timestamptz not null default clock_timestamp())",
        )
        .await?;
    let found = version(&transaction).await?;
    for (number, migration) in (1i32..).zip(MIGRATIONS).skip(found) {
        transaction.batch_execute(&build(migration)).await?;
        transaction.execute("insert into convoke_migrations (version) values ($1)", &[&number]).await?;
    }
    if let Some(functions) = functions
        && found <= MIGRATIONS.len()
        && !is_installed(&transaction, functions).await?
    {
        transaction.batch_execute(functions).await?;
        transaction.batch_execute(&drop_others()).await?;
        let installed = "insert into convoke_functions (id, hash) values (1, md5($1)) \
                         on conflict (id) do update set hash = excluded.hash";
        transaction.execute(installed, &[&functions]).await?;
    }
    transaction.commit().await
}
