//! The workers that may hold shards.

use convoke_core::election::Fence;
use convoke_core::shards::{RosterChange, ShardMember};
use convoke_core::{ServiceName, WorkerId};
use deadpool_postgres::Client;
use tokio_postgres::Row;

use super::epoch::{commit, hold};
use super::failure::Result;
use super::rows::name;
use crate::statement::sql;

pub(super) async fn change(db: &mut Client, fence: Fence, change: &RosterChange) -> Result<()> {
    let transaction = db.transaction().await?;
    hold(&transaction, fence, "change_shard_roster").await?;
    for (members, statement) in [
        (
            &change.remove,
            sql!(
                "delete from convoke_shard_roster
                 using unnest($1::text[], $2::text[]) as gone (service, worker)
                 where convoke_shard_roster.service = gone.service and convoke_shard_roster.worker = gone.worker"
            ),
        ),
        (
            &change.add,
            sql!(
                "insert into convoke_shard_roster (service, worker)
                 select * from unnest($1::text[], $2::text[])
                 on conflict do nothing"
            ),
        ),
    ] {
        if members.is_empty() {
            continue;
        }
        let services: Vec<&str> = members.iter().map(|member| member.service.as_str()).collect();
        let workers: Vec<&str> = members.iter().map(|member| member.worker.as_str()).collect();
        let statement = transaction.prepare_cached(statement).await?;
        transaction.execute(&statement, &[&services, &workers]).await?;
    }
    commit(transaction).await
}

pub(super) async fn all(db: &Client) -> Result<Vec<ShardMember>> {
    let select = "select service, worker from convoke_shard_roster order by service, worker";
    let statement = db.prepare_cached(select).await?;
    let read = |row: &Row| {
        Ok(ShardMember {
            service: name(row, "service", ServiceName::new)?,
            worker: name(row, "worker", WorkerId::new)?,
        })
    };
    db.query(&statement, &[]).await?.iter().map(read).collect()
}
