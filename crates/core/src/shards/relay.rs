//! The messages by which a node requests the leader's view of the shards.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::ids::{NodeId, ServiceName};

/// `shards.ask`: requests the coordinating node's view of one service, or of all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardsAsk {
    /// Part of the topic of the reply.
    pub ask: Uuid,
    /// The service; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
}

/// `shards.reply.{ask}`: sent only by the node that listens for shard workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardsReply {
    /// The node that replies.
    pub node_id: NodeId,
    /// In the form of `GET /v1/shards/{service}`; empty if the service is unknown.
    pub services: Vec<Value>,
    /// The views exceed the size of a message: only the node itself can show them.
    #[serde(default)]
    pub is_too_large: bool,
}
