//! The messages by which nodes ask the leader for its view of the shards.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::ids::{NodeId, ServiceName};

/// `shards.ask`: what the node that coordinates shards knows of one service, or of all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardsAsk {
    /// Names the topic of the reply.
    pub ask: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
}

/// `shards.reply.{ask}`: sent by the node that listens for shard workers, and by no other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardsReply {
    pub node_id: NodeId,
    /// As `GET /v1/shards/{service}` has them; none if the service is unknown.
    pub services: Vec<Value>,
    /// They take more room than a message may have: only the node itself can show them.
    #[serde(default)]
    pub is_too_large: bool,
}
