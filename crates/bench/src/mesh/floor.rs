//! The lower bound of a round trip through Redis: a publish there and a publish back, by the client library that the
//! mesh uses, without the mesh.
//!
//! Both sides publish on one connection and subscribe on another, as the mesh does. A request has as many bytes as one
//! of the mesh. Nothing is parsed, nothing times out, no instance is registered.

use std::sync::Arc;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, ProtocolVersion, PushInfo, PushKind, Value};

use super::slots::{Slots, message};

/// Channel prefix of one measurement, so that two on one Redis do not receive each other's messages.
fn channel(prefix: &str, way: &str) -> Arc<str> {
    format!("{prefix}:floor:{way}").into()
}

#[derive(Clone)]
pub struct Floor {
    there: Arc<str>,
    publisher: MultiplexedConnection,
    slots: Arc<Slots>,
    _listener: MultiplexedConnection,
}

impl Floor {
    pub async fn connect(url: &str, prefix: &str) -> Result<Floor> {
        let slots = Arc::new(Slots::new());
        let waiting = slots.clone();
        let listener = listen(url, &channel(prefix, "back"), move |body| waiting.complete(&body)).await?;
        let there = channel(prefix, "there");
        Ok(Floor { there, publisher: open(url, |_| {}).await?, slots, _listener: listener })
    }

    pub async fn round_trip(&self, place: usize) -> Result<()> {
        let received = self.slots.wait(place)?;
        publish(self.publisher.clone(), &self.there, message(place)).await?;
        Ok(received.await?)
    }
}

/// Sends received messages back until the returned value is dropped.
pub async fn reply(url: &str, prefix: &str) -> Result<MultiplexedConnection> {
    let (publisher, back) = (open(url, |_| {}).await?, channel(prefix, "back"));
    listen(url, &channel(prefix, "there"), move |body| {
        let (publisher, back) = (publisher.clone(), back.clone());
        tokio::spawn(async move { publish(publisher, &back, body).await });
    })
    .await
}

async fn publish(mut publisher: MultiplexedConnection, channel: &str, body: Vec<u8>) -> Result<()> {
    publisher.send_packed_command(redis::cmd("PUBLISH").arg(channel).arg(body)).await?.extract_error()?;
    Ok(())
}

async fn listen(
    url: &str,
    channel: &str,
    on_message: impl Fn(Vec<u8>) + Send + Sync + 'static,
) -> Result<MultiplexedConnection> {
    let mut connection = open(url, move |push| {
        if push.kind == PushKind::Message
            && let Some(Value::BulkString(body)) = push.data.into_iter().nth(1)
        {
            on_message(body);
        }
    })
    .await?;
    connection.subscribe(channel).await?;
    Ok(connection)
}

async fn open(url: &str, on_push: impl Fn(PushInfo) + Send + Sync + 'static) -> Result<MultiplexedConnection> {
    let info = url.into_connection_info()?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(move |push| {
        on_push(push);
        Ok::<(), ()>(())
    });
    let client = Client::open(info.set_redis_settings(settings))?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}
