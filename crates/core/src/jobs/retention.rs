//! The size of one deletion of ended jobs.
//!
//! A job may have many thousand log lines, so a deletion that counted jobs could take minutes, hold locks as long, or
//! never finish within a statement's timeout. A deletion is bounded in rows instead: log lines first, the job with its
//! history last. Each slice makes progress, however many rows the jobs have.

/// The rows that are deleted with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Lines of its logs.
    pub log_lines: u64,
    /// Runs in its history.
    pub runs: u64,
}

/// One slice of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slice {
    /// The number of jobs, from the first on, to delete with all their rows.
    pub jobs: usize,
    /// The number of log lines of the next job to delete, from its last on.
    pub log_lines: u64,
}

/// Returns the slice of `jobs`, in their order, that has at most `rows_max` rows. A job counts as one row more than its
/// log lines and runs. Only a history that is longer than `rows_max` exceeds it, because it is deleted as a whole.
pub fn slice(jobs: impl IntoIterator<Item = Rows>, rows_max: usize) -> Slice {
    let mut left = rows_max.max(1) as u64;
    let mut slice = Slice::default();
    for rows in jobs {
        let all = rows.log_lines.saturating_add(rows.runs).saturating_add(1);
        if all <= left || (slice.jobs == 0 && rows.log_lines == 0) {
            left = left.saturating_sub(all);
            slice.jobs += 1;
        } else {
            slice.log_lines = rows.log_lines.min(left);
            break;
        }
    }
    slice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sliced(jobs: &[(u64, u64)], rows_max: usize) -> (usize, u64) {
        let slice = slice(jobs.iter().map(|(log_lines, runs)| Rows { log_lines: *log_lines, runs: *runs }), rows_max);
        (slice.jobs, slice.log_lines)
    }

    #[test]
    fn jobs_are_taken_whole_while_they_fit() {
        assert_eq!(sliced(&[], 10), (0, 0));
        assert_eq!(sliced(&[(0, 0); 12], 10), (10, 0));
        assert_eq!(sliced(&[(4, 0), (3, 1), (0, 0)], 10), (2, 0));
    }

    #[test]
    fn the_lines_of_the_first_job_that_does_not_fit_take_the_rest() {
        assert_eq!(sliced(&[(0, 0), (20_000, 3)], 10), (1, 9));
        assert_eq!(sliced(&[(20_000, 3)], 10), (0, 10));
        assert_eq!(sliced(&[(10, 0)], 10), (0, 10), "the job itself is one row too many");
        assert_eq!(sliced(&[(5, 0), (0, 7)], 10), (1, 0), "a job without lines waits for the next slice");
    }

    #[test]
    fn a_long_history_goes_in_one_slice() {
        assert_eq!(sliced(&[(0, 1_000), (0, 0)], 10), (1, 0));
        assert_eq!(sliced(&[(3, 1_000)], 10), (0, 3), "its lines before");
    }

    #[test]
    fn every_slice_makes_progress_until_nothing_is_left() {
        let mut jobs: Vec<(u64, u64)> = vec![(0, 0), (37, 2), (1, 99), (0, 40), (10, 0), (9, 1)];
        let rows: u64 = jobs.iter().map(|(lines, runs)| lines + runs + 1).sum();
        for slices in 0.. {
            let (whole, lines) = sliced(&jobs, 10);
            if jobs.is_empty() {
                break;
            }
            assert!(whole > 0 || lines > 0, "{jobs:?}");
            assert!(slices < rows, "{jobs:?}");
            jobs.drain(..whole);
            if let Some(first) = jobs.first_mut() {
                first.0 -= lines;
            }
        }
    }
}
