//! The record of what operators did: who, when, by which way, what, and how the target was before and after.
//!
//! An entry is written once and never changed; retention deletes it. It has no payload of a job: neither arguments nor
//! results nor log lines, so that everyone who may read the API may read it. Every text is bounded, because some of
//! them come from clients.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::json::Json;
use crate::limits::{AUDIT_DETAIL_BYTES_MAX, NAME_BYTES_MAX};

/// The way by which an operator acted, as the client states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum AuditVia {
    /// A request to the HTTP API.
    Api = 0,
    /// The command line.
    Cli = 1,
    /// A page of the dashboard.
    Dashboard = 2,
}

impl AuditVia {
    /// All values, in the order of their codes.
    pub const ALL: [AuditVia; 3] = [AuditVia::Api, AuditVia::Cli, AuditVia::Dashboard];

    /// Returns its name in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            AuditVia::Api => "api",
            AuditVia::Cli => "cli",
            AuditVia::Dashboard => "dashboard",
        }
    }

    /// Returns the number that stores keep.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the value with this number; `None` if there is none.
    pub fn from_code(code: u8) -> Option<AuditVia> {
        AuditVia::ALL.get(usize::from(code)).copied()
    }
}

/// An act of an operator, before it has a number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Act {
    /// When it was done, by the clock of the node that did it.
    pub at: Timestamp,
    /// The name of the token; `local` on a server that is open to its own machine, `anonymous` on one that is open to
    /// all.
    #[cfg_attr(feature = "openapi", schema(example = "ada"))]
    pub who: String,
    /// The way by which the operator acted, as the client states it.
    pub via: AuditVia,
    /// The kind of the target and what was done with it.
    #[cfg_attr(feature = "openapi", schema(example = "queue.pause"))]
    pub action: String,
    /// The name or id of the target; empty if the act has none.
    #[cfg_attr(feature = "openapi", schema(example = "mail"))]
    pub target: String,
    /// The target before; null if there was none, or it is not known.
    #[cfg_attr(feature = "openapi", schema(value_type = Json, required))]
    pub before: Option<Json>,
    /// The target afterwards; null if it is gone.
    #[cfg_attr(feature = "openapi", schema(value_type = Json, required))]
    pub after: Option<Json>,
    /// The node that did it.
    pub node: NodeId,
}

impl Act {
    /// Shortens every text to its limit.
    pub fn bounded(mut self) -> Self {
        for text in [&mut self.who, &mut self.action, &mut self.target] {
            shorten(text, NAME_BYTES_MAX);
        }
        for detail in [&mut self.before, &mut self.after] {
            if let Some(long) = detail.as_ref().map(|json| json.as_str().len()).filter(|n| *n > AUDIT_DETAIL_BYTES_MAX)
            {
                let notice = serde_json::json!({ "omitted": format!("{long} bytes") });
                *detail = Json::of(&notice).ok();
            }
        }
        self
    }
}

/// Cuts a text to at most `bytes_max` bytes, at the end of a character, and marks the cut.
fn shorten(text: &mut String, bytes_max: usize) {
    const MARK: char = '…';
    if text.len() > bytes_max {
        let most = bytes_max.saturating_sub(MARK.len_utf8());
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push(MARK);
    }
}

/// An act in the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// The number of the entry: later ones have higher numbers.
    pub seq: u64,
    /// The act.
    #[serde(flatten)]
    pub act: Act,
}

/// The filters and the page of a read of the record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only acts of this caller.
    pub who: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only this target.
    pub target: Option<String>,
    /// Only acts at or after this time.
    pub after: Option<Timestamp>,
    /// Only acts before this time.
    pub before: Option<Timestamp>,
    /// Only entries with a lower number: the cursor of the page before.
    pub cursor: Option<u64>,
    /// Upper bound of the entries on the page.
    pub limit: usize,
}

impl AuditQuery {
    /// Returns whether an entry matches the filters.
    pub fn admits(&self, entry: &AuditEntry) -> bool {
        let is = |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|wanted| wanted == text);
        let AuditEntry { seq, act } = entry;
        self.cursor.is_none_or(|cursor| *seq < cursor)
            && is(&self.who, &act.who)
            && is(&self.action, &act.action)
            && is(&self.target, &act.target)
            && self.after.is_none_or(|after| act.at >= after)
            && self.before.is_none_or(|before| act.at < before)
    }
}

/// A page of the record, the newest entry first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AuditPage {
    /// The entries, the newest first.
    pub entries: Vec<AuditEntry>,
    /// The cursor of the next page. `None` on the last page.
    pub next_cursor: Option<u64>,
}

impl AuditPage {
    /// Takes a page of at most `limit` from entries of which one more was read if there is one.
    pub fn of(mut entries: Vec<AuditEntry>, limit: usize) -> Self {
        let more = entries.len() > limit;
        entries.truncate(limit);
        let next_cursor = entries.last().filter(|_| more).map(|entry| entry.seq);
        AuditPage { entries, next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act() -> Act {
        Act {
            at: Timestamp::UNIX_EPOCH,
            who: "ada".into(),
            via: AuditVia::Cli,
            action: "queue.pause".into(),
            target: "mail".into(),
            before: Json::of(&serde_json::json!({"paused": false})).ok(),
            after: Json::of(&serde_json::json!({"paused": true})).ok(),
            node: NodeId::new("n").expect("a name"),
        }
    }

    #[test]
    fn texts_of_an_act_are_cut_at_a_character_and_details_replaced() {
        assert_eq!(act().bounded(), act());
        let long = Act {
            who: "ü".repeat(200),
            target: "x".repeat(300),
            after: Json::of(&"y".repeat(AUDIT_DETAIL_BYTES_MAX)).ok(),
            ..act()
        };
        let long = long.bounded();
        assert_eq!(long.who, format!("{}…", "ü".repeat(126)));
        assert_eq!(long.target.len(), NAME_BYTES_MAX);
        let after = long.after.expect("a notice");
        assert_eq!(after.as_str(), format!(r#"{{"omitted":"{} bytes"}}"#, AUDIT_DETAIL_BYTES_MAX + 2));
    }

    #[test]
    fn an_entry_is_one_flat_object() {
        let entry = AuditEntry { seq: 7, act: act() };
        let text = serde_json::to_string(&entry).expect("serialises");
        let expected = r#"{"seq":7,"at":"1970-01-01T00:00:00Z","who":"ada","via":"cli","action":"queue.pause","target":"mail","before":{"paused":false},"after":{"paused":true},"node":"n"}"#;
        assert_eq!(text, expected);
    }
}
