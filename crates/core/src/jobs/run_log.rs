//! The choice of the log lines of a run that are recorded.
//!
//! A report may arrive twice: its response was lost, or a node died between its commit and its acknowledgement. Workers
//! number the lines of a run, so that each is recorded once. A run that logs without end must not fill the store, so a
//! long log ends with a notice that further lines are dropped.

use super::job::LogLevel;
use super::run::NewLog;
use crate::limits::RUN_LOG_LINES_MAX;

/// The recorded part of the log of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunLog {
    /// Lines with a lower number were recorded, or never sent.
    pub next: u64,
    /// The number of recorded lines, the notice included.
    pub kept: u64,
}

impl RunLog {
    /// Counts the next line of the run. Returns what to record: the line, the notice that ends the log, or nothing.
    pub fn take(&mut self, line: &NewLog) -> Option<Taken> {
        if let Some(seq) = line.seq {
            if seq < self.next {
                return None;
            }
            self.next = seq.saturating_add(1);
        }
        let taken = match self.kept.cmp(&RUN_LOG_LINES_MAX) {
            std::cmp::Ordering::Less => Taken::Line,
            std::cmp::Ordering::Equal => Taken::Notice,
            std::cmp::Ordering::Greater => return None,
        };
        self.kept += 1;
        Some(taken)
    }
}

/// The text that is recorded for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The line itself.
    Line,
    /// The notice that this line and the following ones are dropped.
    Notice,
}

impl Taken {
    /// Returns the level and the message to record.
    pub fn text(self, line: &NewLog) -> (LogLevel, &str) {
        match self {
            Taken::Line => (line.level, &line.message),
            Taken::Notice => (LogLevel::Warn, NOTICE),
        }
    }
}

/// The last line of a log that was cut. A test compares the number in it with the limit.
const NOTICE: &str = "the log of this run has reached its limit of 10000 lines: further lines are dropped";

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seq: Option<u64>) -> NewLog {
        NewLog { seq, at: jiff::Timestamp::UNIX_EPOCH, level: LogLevel::Info, message: "m".into() }
    }

    fn taken(log: &mut RunLog, seqs: impl IntoIterator<Item = u64>) -> Vec<u64> {
        seqs.into_iter().filter(|seq| log.take(&line(Some(*seq))).is_some()).collect()
    }

    #[test]
    fn a_line_is_taken_once() {
        let mut log = RunLog::default();
        assert_eq!(taken(&mut log, [1, 2, 3]), [1, 2, 3]);
        assert_eq!(taken(&mut log, [1, 2, 3, 4]), [4], "the same report with one more line");
        assert!(taken(&mut log, [2, 3]).is_empty(), "an old report, late");
        assert_eq!(taken(&mut log, [9, 10]), [9, 10], "lines that a worker dropped leave a gap");
        assert_eq!(log.kept, 6);
    }

    #[test]
    fn numbers_may_begin_at_zero_and_end_anywhere() {
        let mut log = RunLog::default();
        assert_eq!(taken(&mut log, [0, 1, u64::MAX - 1]), [0, 1, u64::MAX - 1]);
    }

    #[test]
    fn lines_without_a_number_are_all_taken() {
        let mut log = RunLog::default();
        for _ in 0..3 {
            assert_eq!(log.take(&line(None)), Some(Taken::Line));
        }
        assert_eq!((log.kept, taken(&mut log, [1])), (3, vec![1]), "and take no number from others");
    }

    #[test]
    fn a_log_ends_at_its_limit_with_a_notice() {
        let mut log = RunLog { next: 7, kept: RUN_LOG_LINES_MAX - 1 };
        let (last, over) = (line(Some(7)), line(Some(8)));
        assert_eq!(log.take(&last), Some(Taken::Line));
        assert_eq!(log.take(&over), Some(Taken::Notice));
        assert_eq!(log.take(&over), None);
        assert_eq!((log.take(&line(Some(9))), log.take(&line(None))), (None, None));
        assert_eq!(Taken::Line.text(&last), (LogLevel::Info, "m"));
        let (level, text) = Taken::Notice.text(&over);
        assert!(level == LogLevel::Warn && text.contains(&RUN_LOG_LINES_MAX.to_string()), "{text}");
    }
}
