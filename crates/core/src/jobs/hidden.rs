//! Hides payloads: what clients put into jobs, and what workers return.
//!
//! | payload | shown instead |
//! | --- | --- |
//! | arguments, results | `null` |
//! | errors, log lines, messages of progress: texts of workers | [`HIDDEN`] |
//!
//! The rest of the definition, names by which jobs are found, is no payload.

use super::job::{Execution, Job, LogLine};
use super::schedule::Schedule;
use crate::json::Json;

/// The text that is shown instead of a text of a worker.
pub const HIDDEN: &str = "(hidden)";

/// A value that may have payloads.
pub trait HidePayloads {
    /// Replaces every payload.
    fn hide_payloads(&mut self);
}

/// Replaces a text of a worker, if there is one.
fn hide_text(text: &mut Option<String>) {
    if let Some(text) = text {
        *text = HIDDEN.to_owned();
    }
}

impl HidePayloads for Job {
    fn hide_payloads(&mut self) {
        self.definition.args = Json::null();
        self.result = None;
        hide_text(&mut self.error);
        if let Some(progress) = &mut self.progress {
            hide_text(&mut progress.message);
        }
    }
}

impl HidePayloads for Execution {
    fn hide_payloads(&mut self) {
        hide_text(&mut self.error);
    }
}

impl HidePayloads for LogLine {
    fn hide_payloads(&mut self) {
        self.message = HIDDEN.to_owned();
    }
}

impl HidePayloads for Schedule {
    fn hide_payloads(&mut self) {
        self.template.args = None;
    }
}

impl<T: HidePayloads> HidePayloads for Vec<T> {
    fn hide_payloads(&mut self) {
        self.iter_mut().for_each(T::hide_payloads);
    }
}

impl<T: HidePayloads> HidePayloads for Option<T> {
    fn hide_payloads(&mut self) {
        self.iter_mut().for_each(T::hide_payloads);
    }
}
