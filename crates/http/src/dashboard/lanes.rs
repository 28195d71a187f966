//! The lanes of the nodes: time from left to right, a bar for each term, a mark for each slow renewal and each refused
//! write.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke_core::NodeId;
use convoke_core::history::{FenceKind, RefusedWrite, TermRecord};
use convoke_core::jobs::handoff::AckCase;
use jiff::Timestamp;

use super::text::{age, count, span};

/// The width of the time axis and the height of a lane, in units of the picture.
pub const WIDTH: u32 = 860;
const LANE: u32 = 34;
/// Where the time axis begins: the names of the nodes are before it.
pub const LEFT: u32 = 140;
/// Nodes that have a lane.
const LANES_MAX: usize = 50;

/// A bar: one term.
pub struct Bar {
    pub x: u32,
    pub width: u32,
    pub epoch: String,
    /// Whether the number fits into the bar.
    pub is_wide: bool,
    pub is_present: bool,
    pub title: String,
}

/// A mark in a lane.
pub struct LaneMark {
    pub x: u32,
    /// `slow` or `refused`, the class of its shape.
    pub kind: &'static str,
    pub title: String,
}

/// The lane of a node.
pub struct Lane {
    pub node: String,
    pub y: u32,
    pub bars: Vec<Bar>,
    pub marks: Vec<LaneMark>,
}

/// The picture of all lanes.
pub struct Lanes {
    pub height: u32,
    pub lanes: Vec<Lane>,
    pub axis: Vec<(u32, String)>,
}

/// A sentence about a refused write: what, by whom, with which number.
pub fn explain(refused: &RefusedWrite) -> String {
    let RefusedWrite { what, by, number, against, fence, .. } = refused;
    let against = |name: &str| against.as_ref().map_or(String::new(), |against| format!(", {name} is {against}"));
    match fence {
        FenceKind::Leader => {
            format!("the store refused {what:?} of {by}: it carried epoch {number}{}", against("the sealed epoch"))
        }
        FenceKind::Run => {
            format!("the store refused {what:?} by {by}: it named run {number}{}", against("the present run"))
        }
        FenceKind::Owner => {
            format!("the store refused {what:?} by {by}: {number} recorded it{}", against("the owner"))
        }
    }
}

/// The words of a case of a handoff.
pub fn case_words(case: AckCase) -> &'static str {
    match case {
        AckCase::Acknowledged => "acknowledged at once",
        AckCase::OfferedAgain => "acknowledged after it was offered again",
        AckCase::NeverAcknowledged => "never acknowledged: left as an orphan",
        AckCase::OthersSilent => "all other nodes were silent meanwhile",
    }
}

fn describe(term: &TermRecord, now: Timestamp) -> String {
    let TermRecord { epoch, node, began_at, ended_at, ended_by, reported, .. } = term;
    let lasted = span(age(*began_at, ended_at.unwrap_or(now)));
    let how = if *reported { "" } else { ", known from the lease only" };
    match (ended_at, ended_by) {
        (Some(ended_at), by) => {
            let by = by.map_or("ended", |by| by.as_str());
            format!("{node} led epoch {epoch} from {began_at:.0} to {ended_at:.0} ({lasted}): {by}{how}")
        }
        (None, _) => format!("{node} leads epoch {epoch} since {began_at:.0} ({lasted}){how}"),
    }
}

impl Lanes {
    /// Draws the last `window` up to `now`. `nodes` have lanes even if they never led.
    pub fn draw(
        nodes: &[NodeId],
        terms: &[TermRecord],
        refused: &[RefusedWrite],
        window: Duration,
        now: Timestamp,
    ) -> Lanes {
        let from = now.checked_sub(window).unwrap_or(Timestamp::MIN);
        let length = window.as_millis().max(1) as i64;
        let place = |at: Timestamp| {
            let passed = (at.as_millisecond() - from.as_millisecond()).clamp(0, length);
            LEFT + u32::try_from(passed * i64::from(WIDTH) / length).unwrap_or(WIDTH)
        };
        let is_shown = |at: Timestamp| at >= from && at <= now;
        let seen = |term: &&TermRecord| term.ended_at.is_none_or(|ended| ended >= from);
        let names: BTreeSet<&NodeId> = nodes
            .iter()
            .chain(terms.iter().filter(seen).map(|term| &term.node))
            .chain(refused.iter().filter(|refused| is_shown(refused.at)).map(|refused| &refused.node))
            .collect();
        let lanes = names.into_iter().take(LANES_MAX).enumerate().map(|(row, node)| {
            let bars = terms.iter().filter(|term| term.node == *node).filter(seen).map(|term| {
                let (x, end) = (place(term.began_at), place(term.ended_at.unwrap_or(now)));
                let width = end.saturating_sub(x).max(3);
                let epoch = term.epoch.to_string();
                let is_wide = width as usize > epoch.len() * 8 + 8;
                Bar { x, width, is_wide, epoch, is_present: term.ended_at.is_none(), title: describe(term, now) }
            });
            let slow = terms.iter().filter(|term| term.node == *node).flat_map(|term| {
                term.slow_renewals.iter().filter(|slow| is_shown(slow.at)).map(|slow| LaneMark {
                    x: place(slow.at),
                    kind: "slow",
                    title: format!(
                        "a renewal of epoch {} took {} at {:.0}; one is due every {}",
                        term.epoch,
                        span(slow.duration),
                        slow.at,
                        span(slow.expected)
                    ),
                })
            });
            let marks = refused.iter().filter(|refused| refused.node == *node && is_shown(refused.at)).map(|refused| {
                LaneMark {
                    x: place(refused.at),
                    kind: "refused",
                    title: format!("{:.0}: {}", refused.at, explain(refused)),
                }
            });
            let (bars, marks) = (bars.collect(), slow.chain(marks).collect());
            Lane { node: node.to_string(), y: row as u32 * LANE, bars, marks }
        });
        let lanes: Vec<Lane> = lanes.collect();
        let axis = (0..=4).map(|part| {
            let back = window * (4 - part) / 4;
            let label = if back.is_zero() { "now".to_owned() } else { format!("−{}", span(back)) };
            (LEFT + WIDTH * part / 4, label)
        });
        Lanes { height: lanes.len() as u32 * LANE + 24, axis: axis.collect(), lanes }
    }

    /// Returns the picture in words, for readers who do not see it.
    pub fn summary(&self) -> String {
        let bars: usize = self.lanes.iter().map(|lane| lane.bars.len()).sum();
        let marks = |kind: &str| {
            let marks = self.lanes.iter().flat_map(|lane| &lane.marks).filter(|mark| mark.kind == kind).count();
            count(marks as u64)
        };
        format!(
            "Terms: {}, nodes: {}, slow renewals: {}, refused writes: {}. The tables below have them all.",
            count(bars as u64),
            self.lanes.len(),
            marks("slow"),
            marks("refused")
        )
    }
}

#[cfg(test)]
mod tests {
    use convoke_core::Epoch;
    use convoke_core::history::TermEnd;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn node(name: &str) -> NodeId {
        NodeId::new(name).expect("a name")
    }

    #[test]
    fn a_bar_is_where_and_as_long_as_its_term() {
        let term = |epoch, name: &str, began: i64, ended: Option<i64>| TermRecord {
            epoch: Epoch(epoch),
            node: node(name),
            began_at: at(began),
            ended_at: ended.map(at),
            ended_by: ended.map(|_| TermEnd::Expired),
            slow_renewals: Vec::new(),
            reported: true,
        };
        let terms = [term(3, "b", 1_750, None), term(2, "a", 500, Some(1_500)), term(1, "a", 10, Some(900))];
        let lanes = Lanes::draw(&[node("a"), node("b"), node("c")], &terms, &[], Duration::from_secs(1_000), at(2_000));
        let shown: Vec<_> = lanes.lanes.iter().map(|lane| (lane.node.as_str(), lane.bars.len())).collect();
        assert_eq!(shown, [("a", 1), ("b", 1), ("c", 0)], "a term before the window has no bar");
        let bar = &lanes.lanes[0].bars[0];
        assert_eq!((bar.x, bar.width, bar.is_present), (LEFT, WIDTH / 2, false));
        let bar = &lanes.lanes[1].bars[0];
        assert_eq!((bar.x, bar.width, bar.is_present), (LEFT + WIDTH * 3 / 4, WIDTH / 4, true));
        assert!(lanes.lanes[0].bars[0].title.contains("expired"));
    }
}
