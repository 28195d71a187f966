//! The position of a call in a trace: W3C `traceparent`, passed from the caller to the handler and to the calls of the
//! handler.
//!
//! An invalid value is treated as absent, as the specification requires: a call never fails because of its trace.

use std::fmt;
use std::str::FromStr;

use crate::error::Invalid;

/// A W3C `traceparent`. Written as version 00.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    flags: u8,
}

impl TraceParent {
    const SAMPLED: u8 = 1;

    /// Returns the root of a new, sampled trace. Both numbers are random; 0 means no trace and becomes 1.
    pub fn new(trace: u128, span: u64) -> Self {
        TraceParent { trace: trace.max(1), span: span.max(1), flags: Self::SAMPLED }
    }

    /// Returns the next span of the same trace.
    pub fn child(self, span: u64) -> Self {
        TraceParent { span: span.max(1), ..self }
    }

    /// Returns the trace's id as 32 hex digits.
    pub fn trace_id(self) -> String {
        format!("{:032x}", self.trace)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

impl FromStr for TraceParent {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse(text)
            .ok_or_else(|| Invalid::new("traceparent", "expected 00-<32 hex digits>-<16 hex digits>-<2 hex digits>"))
    }
}

fn parse(text: &str) -> Option<TraceParent> {
    let is_plain = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let lengths = (version.len(), trace.len(), span.len(), flags.len());
    if lengths != (2, 32, 16, 2) || ![version, trace, span, flags].into_iter().all(is_plain) || version == "ff" {
        return None;
    }
    // A later version may have more parts; version 00 has none.
    if version == "00" && parts.next().is_some() {
        return None;
    }
    let (trace, span) = (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
    let flags = u8::from_str_radix(flags, 16).ok()?;
    (trace != 0 && span != 0).then_some(TraceParent { trace, span, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_shown_as_it_was_read() {
        let parent: TraceParent = TEXT.parse().expect("the specification's own example");
        assert_eq!(parent.to_string(), TEXT);
        assert_eq!(parent.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.child(255).to_string(), "00-0af7651916cd43dd8448eb211c80319c-00000000000000ff-01");
        assert_eq!(TraceParent::new(0, 0).to_string().parse(), Ok(TraceParent::new(1, 1)));
    }

    #[test]
    fn what_the_specification_forbids_is_refused() {
        let wrong = [
            "",
            "00",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-ü-ü-ü",
        ];
        for text in wrong {
            assert_eq!(text.parse::<TraceParent>().expect_err(text).field, "traceparent");
        }
        format!("01-{}-more", &TEXT[3..]).parse::<TraceParent>().expect("a later version may have more");
    }
}
