//! Leases as rows, by the server's clock.
//!
//! They use no session locks, which a pooler or a reconnect would drop. They have connections of their own, so that a
//! busy store cannot delay a renewal until the lease is lost. A resignation is notified by `NOTIFY`, in its own
//! transaction.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::ports::leases::{Floor, Lease, TTL_MAX};
use convoke_core::ports::{Leases, Resignations};
use convoke_core::{Epoch, Error, Result};
use deadpool_postgres::Client;
use tokio_postgres::Row;

use super::epoch;
use super::failure::{self, Failure};
use super::migrate::migrate;
use super::resignations::ResignationListener;
use super::rows::{check_exact, get, number};
use super::server::{Flush, Server, Ways, lent};
use crate::statement::sql;

const CONNECTIONS: usize = 2;

#[derive(Clone)]
pub struct PostgresLeases {
    ways: Ways,
    server: Server,
    /// The connection of the watches. It is made for the first one.
    listener: Arc<OnceLock<ResignationListener>>,
}

impl PostgresLeases {
    /// Connects and migrates. Errors name the setting `leases.url`.
    pub async fn connect(url: &str) -> Result<Self> {
        let server = Server::new("leases.url", url)?;
        migrate(&server, None).await?;
        Self::of(&server).await
    }

    pub(super) async fn of(server: &Server) -> Result<Self> {
        let mut ways = server.pool(CONNECTIONS, Flush::Now).await?;
        ways.what = "leases";
        Ok(PostgresLeases { ways, server: server.clone(), listener: Arc::default() })
    }
}

impl std::fmt::Debug for PostgresLeases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresLeases").finish_non_exhaustive()
    }
}

fn ttl_ms(ttl: Duration) -> f64 {
    ttl.min(TTL_MAX).as_secs_f64() * 1_000.0
}

fn epoch_number(epoch: Epoch) -> failure::Result<i64> {
    i64::try_from(epoch.0).map_err(|_| Error::Fenced { what: "lease" }.into())
}

fn check(names: [&str; 2]) -> failure::Result<()> {
    let [namespace, member] = names;
    check_exact("namespace", Some(namespace))?;
    check_exact("member", Some(member))?;
    Ok(())
}

fn read_lease(row: &Row) -> failure::Result<Lease> {
    let left_ms: i64 = get(row, "left_ms")?;
    let remaining = Duration::from_millis(left_ms.max(0) as u64);
    Ok(Lease { holder: get(row, "holder")?, epoch: Epoch(number(row, "epoch")?), remaining, is_foreign: false })
}

async fn enroll(db: &Client, namespace: &str, member: &str, ttl: Duration) -> failure::Result<()> {
    check([namespace, member])?;
    let statement = db.prepare_cached(sql!(include_str!("sql/enroll.sql"))).await?;
    db.execute(&statement, &[&namespace, &member, &ttl_ms(ttl)]).await.map_err(Failure::of_commit)?;
    Ok(())
}

async fn withdraw(db: &Client, namespace: &str, member: &str) -> failure::Result<()> {
    check([namespace, member])?;
    let forget = "delete from convoke_members where namespace = $1 and member = $2";
    let statement = db.prepare_cached(forget).await?;
    db.execute(&statement, &[&namespace, &member]).await.map_err(Failure::of_commit)?;
    Ok(())
}

async fn roster(db: &Client, namespace: &str) -> failure::Result<Vec<String>> {
    check([namespace, ""])?;
    let select =
        "select member from convoke_members where namespace = $1 and expires_at > clock_timestamp() order by 1";
    let statement = db.prepare_cached(select).await?;
    db.query(&statement, &[&namespace]).await?.iter().map(|row| get(row, "member")).collect()
}

async fn namespaces(db: &Client, limit: usize) -> failure::Result<Vec<String>> {
    let select = "select namespace from convoke_leases where expires_at > clock_timestamp()
                  union
                  select namespace from convoke_members where expires_at > clock_timestamp()
                  order by 1 limit $1";
    let statement = db.prepare_cached(select).await?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    db.query(&statement, &[&limit]).await?.iter().map(|row| get(row, "namespace")).collect()
}

async fn read(db: &Client, namespace: &str) -> failure::Result<Option<Lease>> {
    check([namespace, ""])?;
    let statement = db
        .prepare_cached(sql!(
            "select holder, epoch, (extract(epoch from expires_at - clock_timestamp()) * 1000)::bigint as left_ms
             from convoke_leases
             where namespace = $1 and expires_at > clock_timestamp()"
        ))
        .await?;
    db.query_opt(&statement, &[&namespace]).await?.as_ref().map(read_lease).transpose()
}

async fn elect(db: &Client, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> failure::Result<Lease> {
    check([namespace, candidate])?;
    let statement = db.prepare_cached(sql!(include_str!("sql/elect.sql"))).await?;
    let elected =
        db.query_opt(&statement, &[&namespace, &candidate, &ttl_ms(ttl), &epoch_number(floor.epoch())?]).await;
    match elected.map_err(Failure::of_commit)? {
        Some(row) => read_lease(&row),
        None => Err(Error::Conflict(format!("{namespace} has a leader")).into()),
    }
}

async fn renew(db: &Client, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> failure::Result<Lease> {
    check([namespace, holder])?;
    let statement = db.prepare_cached(sql!(include_str!("sql/renew.sql"))).await?;
    let renewed = db.query_opt(&statement, &[&namespace, &holder, &epoch_number(epoch)?, &ttl_ms(ttl)]).await;
    let renewed = renewed.map_err(Failure::of_commit)?;
    renewed.as_ref().map(read_lease).transpose()?.ok_or_else(|| Error::Fenced { what: "renew" }.into())
}

async fn publish(db: &Client, namespace: &str, report: &str) -> failure::Result<()> {
    check([namespace, ""])?;
    let statement = db.prepare_cached("update convoke_leases set report = $2 where namespace = $1").await?;
    db.execute(&statement, &[&namespace, &report]).await.map_err(Failure::of_commit)?;
    Ok(())
}

async fn published(db: &Client, namespace: &str) -> failure::Result<Option<String>> {
    check([namespace, ""])?;
    let statement = db.prepare_cached("select report from convoke_leases where namespace = $1").await?;
    let row = db.query_opt(&statement, &[&namespace]).await?;
    Ok(row.as_ref().map(|row| get::<Option<String>>(row, "report")).transpose()?.flatten())
}

async fn resign(db: &Client, namespace: &str, holder: &str, epoch: Epoch) -> failure::Result<()> {
    check([namespace, holder])?;
    let Ok(epoch) = epoch_number(epoch) else { return Ok(()) };
    let statement = db.prepare_cached(sql!(include_str!("sql/resign.sql"))).await?;
    db.execute(&statement, &[&namespace, &holder, &epoch]).await.map_err(Failure::of_commit)?;
    Ok(())
}

#[async_trait]
impl Leases for PostgresLeases {
    fn address(&self) -> String {
        self.ways.address()
    }

    fn carries_reports(&self) -> bool {
        true
    }

    async fn publish(&self, namespace: &str, report: &str) -> Result<()> {
        lent!(Write, &self.ways, |db| publish(db, namespace, report))
    }

    async fn published(&self, namespace: &str) -> Result<Option<String>> {
        lent!(Read, &self.ways, |db| published(db, namespace))
    }

    async fn enroll(&self, namespace: &str, member: &str, ttl: Duration) -> Result<()> {
        lent!(Write, &self.ways, |db| enroll(db, namespace, member, ttl))
    }

    async fn withdraw(&self, namespace: &str, member: &str) -> Result<()> {
        lent!(Write, &self.ways, |db| withdraw(db, namespace, member))
    }

    async fn roster(&self, namespace: &str) -> Result<Vec<String>> {
        lent!(Read, &self.ways, |db| roster(db, namespace))
    }

    async fn namespaces(&self, limit: usize) -> Result<Option<Vec<String>>> {
        lent!(Read, &self.ways, |db| namespaces(db, limit)).map(Some)
    }

    async fn read(&self, namespace: &str) -> Result<Option<Lease>> {
        lent!(Read, &self.ways, |db| read(db, namespace))
    }

    async fn elect(&self, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease> {
        lent!(Write, &self.ways, |db| elect(db, namespace, candidate, ttl, floor))
    }

    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
        lent!(Write, &self.ways, |db| renew(db, namespace, holder, epoch, ttl))
    }

    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
        lent!(Write, &self.ways, |db| resign(db, namespace, holder, epoch))
    }

    fn watch_resignations(&self, namespace: &str) -> Box<dyn Resignations> {
        let listener = self.listener.get_or_init(|| ResignationListener::start(self.server.clone()));
        Box::new(listener.watch(namespace))
    }

    async fn ping(&self) -> Result<()> {
        lent!(Read, &self.ways, |db| epoch::ping(db))
    }
}
