//! A member of a consumer group: its statements.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::Result;
use convoke_core::jobs::wire::{self, Poison};
use convoke_core::limits::TAKE_BYTES_MAX;
use convoke_core::ports::{Bus, Delivery};
use deadpool_postgres::Client;
use parking_lot::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use tracing::warn;

use super::{PostgresBus, id_of, seconds};
use crate::postgres::failure::{self, Failure};
use crate::postgres::rows::get;
use crate::postgres::server::lent;
use crate::statement::sql;

/// An entry that was delivered more often than this is set aside.
const DELIVERIES_MAX: u32 = 16;
/// A member that has nothing pending and did not read for this long is removed from its group.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(3_600);

pub(super) struct Member {
    pub(super) bus: PostgresBus,
    pub(super) queue: String,
    pub(super) group: String,
    pub(super) name: String,
    /// Entries that were returned and not acknowledged.
    held: Mutex<HashSet<i64>>,
    /// A read failed after it may have been committed: entries may be pending that nobody received.
    has_lost_some: AtomicBool,
    /// The connection of the hub when it joined.
    joined: AtomicU64,
}

impl Member {
    pub(super) fn new(bus: &PostgresBus, queue: &str, group: &str, name: &str) -> Self {
        Member {
            bus: bus.clone(),
            queue: queue.to_owned(),
            group: group.to_owned(),
            name: name.to_owned(),
            held: Mutex::default(),
            has_lost_some: AtomicBool::new(false),
            joined: AtomicU64::new(0),
        }
    }

    /// Joins the group. Repeated if the server may have lost it.
    pub(super) async fn join(&self) -> Result<()> {
        let connection = self.bus.hub.connection();
        lent!(Write, &self.bus.ways, |db| self.execute(db, sql!(include_str!("sql/join.sql"))))?;
        self.joined.store(connection, Ordering::SeqCst);
        Ok(())
    }

    /// Runs a statement whose values are the queue, the group and the name of this member.
    async fn execute(&self, db: &Client, text: &'static str) -> failure::Result<u64> {
        let statement = db.prepare_cached(text).await?;
        db.execute(&statement, &[&self.queue, &self.group, &self.name]).await.map_err(Failure::of_commit)
    }

    /// Takes undelivered entries: at most `max`, and about [`TAKE_BYTES_MAX`] bytes.
    pub(super) async fn read(self: &Arc<Self>, max: usize) -> Result<Taken> {
        if self.joined.load(Ordering::SeqCst) != self.bus.hub.connection() {
            self.join().await?;
        }
        if self.has_lost_some.load(Ordering::SeqCst) {
            self.recover().await?;
        }
        let read = lent!(Write, &self.bus.ways, |db| self.take(db, max));
        if matches!(read, Err(convoke_core::Error::Unknown { .. })) {
            self.has_lost_some.store(true, Ordering::SeqCst);
        }
        let entries = read?;
        Ok(Taken { member: self.clone(), entries })
    }

    async fn take(&self, db: &Client, max: usize) -> failure::Result<Vec<(i64, Bytes)>> {
        let statement = db.prepare_cached(sql!(include_str!("sql/take.sql"))).await?;
        let (max, bytes) = (max as i64, TAKE_BYTES_MAX as i64);
        let rows = db.query(&statement, &[&self.queue, &self.group, &self.name, &max, &bytes]).await;
        let rows = rows.map_err(Failure::of_commit)?;
        rows.iter().map(|row| Ok((get(row, "id")?, get::<Vec<u8>>(row, "body")?.into()))).collect()
    }

    /// Makes entries undelivered again that are pending for this member although nobody received them.
    async fn recover(&self) -> Result<()> {
        let held: Vec<i64> = self.held.lock().iter().copied().collect();
        lent!(Write, &self.bus.ways, |db| self.untake(db, &held, false))?;
        self.has_lost_some.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Makes these entries undelivered again.
    async fn release(&self, ids: &[i64]) -> Result<()> {
        lent!(Write, &self.bus.ways, |db| self.untake(db, ids, true))
    }

    async fn untake(&self, db: &Client, ids: &[i64], of_these: bool) -> failure::Result<()> {
        let statement = db
            .prepare_cached(sql!(
                "update convoke_bus_entries set member = null, group_name = null, taken_at = null, deliveries = 0
                 where queue = $1 and group_name = $2 and member = $3 and deliveries = 1 and (id = any ($4)) = $5"
            ))
            .await?;
        let values: [&(dyn ToSql + Sync); 5] = [&self.queue, &self.group, &self.name, &ids, &of_these];
        db.execute(&statement, &values).await.map_err(Failure::of_commit)?;
        Ok(())
    }

    pub(super) async fn ack(&self, ids: &[String]) -> Result<()> {
        let ids: Vec<i64> = ids.iter().filter_map(|id| id_of(id)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        lent!(Write, &self.bus.ways, |db| self.delete(db, &ids))?;
        let mut held = self.held.lock();
        ids.iter().for_each(|id| {
            held.remove(id);
        });
        Ok(())
    }

    async fn delete(&self, db: &Client, ids: &[i64]) -> failure::Result<()> {
        let delete = "delete from convoke_bus_entries where queue = $1 and id = any ($3) and group_name = $2";
        let statement = db.prepare_cached(delete).await?;
        db.execute(&statement, &[&self.queue, &self.group, &ids]).await.map_err(Failure::of_commit)?;
        Ok(())
    }

    pub(super) async fn take_over(&self, idle: Duration, max: usize) -> Result<Vec<Delivery>> {
        let taken = lent!(Write, &self.bus.ways, |db| self.take_over_idle(db, idle, max))?;
        lent!(Write, &self.bus.ways, |db| self.forget_members(db, idle.max(FORGET_AFTER)))?;
        let (spoilt, sound): (Vec<_>, Vec<_>) = taken.into_iter().partition(|it| it.deliveries > DELIVERIES_MAX);
        self.set_aside(spoilt).await?;
        self.held.lock().extend(sound.iter().filter_map(|delivery| id_of(&delivery.id)));
        Ok(sound)
    }

    async fn take_over_idle(&self, db: &Client, idle: Duration, max: usize) -> failure::Result<Vec<Delivery>> {
        let statement = db.prepare_cached(sql!(include_str!("sql/take_over.sql"))).await?;
        let (max, bytes, idle) = (max as i64, TAKE_BYTES_MAX as i64, seconds(idle));
        let rows = db.query(&statement, &[&self.queue, &self.group, &self.name, &max, &bytes, &idle]).await;
        let rows = rows.map_err(Failure::of_commit)?;
        let delivery = |row: &Row| -> failure::Result<Delivery> {
            let (id, body): (i64, Vec<u8>) = (get(row, "id")?, get(row, "body")?);
            let deliveries = u32::try_from(get::<i32>(row, "deliveries")?).unwrap_or(0);
            Ok(Delivery { id: id.to_string(), body: body.into(), deliveries })
        };
        rows.iter().map(delivery).collect()
    }

    async fn forget_members(&self, db: &Client, idle: Duration) -> failure::Result<()> {
        let statement = db.prepare_cached(sql!(include_str!("sql/forget_members.sql"))).await?;
        db.execute(&statement, &[&self.queue, &self.group, &seconds(idle)]).await.map_err(Failure::of_commit)?;
        Ok(())
    }

    /// Moves entries that were delivered too often to the poison queue, and acknowledges them.
    async fn set_aside(&self, spoilt: Vec<Delivery>) -> Result<()> {
        for delivery in spoilt {
            let reason = format!("delivered {} times and never acknowledged", delivery.deliveries);
            warn!(queue = self.queue, id = delivery.id, reason, "entry set aside");
            let poison = Poison::of(self.queue.clone(), reason, &delivery.body);
            // If this fails, or the process dies in between, the entry is still pending and is set aside later.
            self.bus.push(vec![(self.bus.channels.poison(), wire::encode(&poison))]).await?;
            self.ack(&[delivery.id]).await?;
        }
        Ok(())
    }

    pub(super) async fn leave(&self) -> Result<()> {
        lent!(Write, &self.bus.ways, |db| self.execute(db, sql!(include_str!("sql/leave.sql"))))?;
        Ok(())
    }

    /// Removes this member, which vanished, unless it has pending entries.
    pub(super) async fn part(&self) -> Result<()> {
        lent!(Write, &self.bus.ways, |db| self.execute(db, sql!(include_str!("sql/part.sql"))))?;
        Ok(())
    }
}

/// Entries that were taken and not returned to a caller yet. If it is dropped, they become undelivered again.
pub(super) struct Taken {
    member: Arc<Member>,
    entries: Vec<(i64, Bytes)>,
}

impl Taken {
    pub(super) fn into_deliveries(mut self) -> Vec<Delivery> {
        let entries = std::mem::take(&mut self.entries);
        self.member.held.lock().extend(entries.iter().map(|(id, _)| *id));
        let delivery = |(id, body): (i64, Bytes)| Delivery { id: id.to_string(), body, deliveries: 1 };
        entries.into_iter().map(delivery).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.iter().map(|(_, body)| body.len()).sum()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let ids: Vec<i64> = self.entries.iter().map(|(id, _)| *id).collect();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if ids.is_empty() {
            return;
        }
        let member = self.member.clone();
        runtime.spawn(async move {
            if let Err(error) = member.release(&ids).await {
                tracing::debug!(%error, queue = member.queue, "entries stay pending until they are taken over");
            }
            // Others in any process may have waited for them.
            let _ = member.bus.ring(&member.queue).await;
        });
    }
}
