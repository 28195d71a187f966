use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Invalid;

/// Decides which members stand if there is no leader. Neither policy replaces a live leader. Both end a term whose
/// epoch is not above all known ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The first candidate leads: fastest, and independent of ids.
    #[default]
    FirstCome,
    /// The present member whose id sorts first leads. The others stand only if it does not.
    LowestId,
}

impl Policy {
    /// Returns how many members stand before `me`. `members` are in order. `lapsed` did not renew its lease, so it is
    /// not waited for although it may still be enrolled.
    pub fn rank(self, me: &str, members: &[String], lapsed: Option<&str>) -> u32 {
        match self {
            Policy::FirstCome => 0,
            Policy::LowestId => {
                let before = members.iter().filter(|member| member.as_str() < me && Some(member.as_str()) != lapsed);
                u32::try_from(before.count()).unwrap_or(u32::MAX)
            }
        }
    }

    /// Returns the name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Policy::FirstCome => "first-come",
            Policy::LowestId => "lowest-id",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Policy {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        [Policy::FirstCome, Policy::LowestId]
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or_else(|| Invalid::new("policy", format!("expected first-come or lowest-id, got {text:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_id_that_sorts_first_is_the_first_to_stand() {
        let fleet = members(&["pod-123", "pod-abc", "pod-def"]);
        let ranks = ["pod-123", "pod-abc", "pod-def"].map(|me| Policy::LowestId.rank(me, &fleet, None));
        assert_eq!(ranks, [0, 1, 2]);
    }

    #[test]
    fn a_leader_that_let_its_lease_run_out_is_not_waited_for() {
        let fleet = members(&["a", "b", "c"]);
        assert_eq!(Policy::LowestId.rank("b", &fleet, Some("a")), 0);
        assert_eq!(Policy::LowestId.rank("a", &fleet, Some("a")), 0);
    }

    #[test]
    fn first_come_asks_nobody() {
        assert_eq!(Policy::FirstCome.rank("z", &members(&["a", "b"]), None), 0);
    }

    #[test]
    fn a_policy_is_read_as_it_is_written() {
        for policy in [Policy::FirstCome, Policy::LowestId] {
            assert_eq!(policy.to_string().parse::<Policy>(), Ok(policy));
        }
        assert!("highest".parse::<Policy>().is_err());
    }
}
