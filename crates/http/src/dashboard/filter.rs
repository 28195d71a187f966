//! The filter bar: `status:failed type:email.send queue:mail`, as people type it.
//!
//! Each word is a parameter of `GET /v1/jobs`, and the API's own parser reads it. So the bar has no filter that the API,
//! and an index of the store, does not have.

use convoke_core::JobId;
use convoke_core::jobs::filter::{FILTERS, word_of};
use convoke_core::ports::store::JobQuery;
use jiff::Timestamp;

use super::text::encode;
use crate::body::Params;
use crate::error::{ApiError, ApiResult};
use crate::jobs;

/// The filter that the bar has no word for: it is a type that ends with `*`.
const PREFIX: &str = "typePrefix";

/// Returns the words of the bar.
pub fn known_words() -> impl Iterator<Item = &'static str> {
    FILTERS.into_iter().filter(|name| *name != PREFIX).map(word_of)
}

/// Upper bound of a filter's text, in bytes: more than all filters with the longest names.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// A filter, parsed.
#[derive(Debug, PartialEq)]
pub enum Filter {
    /// The jobs that match.
    Jobs(Box<JobQuery>),
    /// One job, by its id.
    Job(JobId),
}

impl Filter {
    /// Parses a filter for a page of at most `limit` jobs from `cursor` on.
    pub fn parse(text: &str, limit: usize, cursor: Option<String>) -> ApiResult<Filter> {
        if let Ok(id) = text.trim().parse::<JobId>() {
            return Ok(Filter::Job(id));
        }
        let mut pairs = vec![("limit".to_owned(), limit.to_string())];
        pairs.extend(cursor.map(|cursor| ("cursor".to_owned(), cursor)));
        for (word, value) in words(text)? {
            let param = FILTERS.into_iter().find(|name| *name != PREFIX && word_of(name) == word).ok_or_else(|| {
                let known = known_words().collect::<Vec<_>>().join(", ");
                ApiError::invalid("q", format!("expected one of {known} before the colon, got {word:?}"))
            })?;
            // `type:email.*` is every type that begins with `email.`.
            let (param, value) = match (param, value.strip_suffix('*')) {
                ("type", Some(prefix)) if !prefix.is_empty() => (PREFIX, prefix.to_owned()),
                (param, _) => (param, value),
            };
            pairs.push((param.to_owned(), value));
        }
        jobs::list_query(Params::from_pairs(pairs), Timestamp::now()).map(|query| Filter::Jobs(Box::new(query)))
    }
}

/// Returns the path of the list of jobs with one filter, without the prefix.
pub fn path_of(word: &str, value: &str) -> String {
    format!("/jobs?q={}", encode(&written(word, value)))
}

/// Returns a word of the bar as it is typed; a value with spaces or quotes is quoted.
pub fn written(word: &str, value: &str) -> String {
    if value.contains(|c: char| c.is_whitespace() || c == '"' || c == '\\') || value.is_empty() {
        format!("{word}:\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    } else {
        format!("{word}:{value}")
    }
}

/// Splits `word:value word:"a value"` into pairs.
fn words(text: &str) -> ApiResult<Vec<(String, String)>> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("expected a filter of at most {TEXT_BYTES_MAX} bytes, got {}", text.len());
        return Err(ApiError::invalid("q", message));
    }
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_whitespace() || c == ':').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let Some(value) = after.strip_prefix(':') else {
            let message = format!("expected word:value, such as status:failed, or the id of a job, got {word:?}");
            return Err(ApiError::invalid("q", message));
        };
        let (value, after) = match value.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = value.find(char::is_whitespace).unwrap_or(value.len());
                (value[..end].to_owned(), &value[end..])
            }
        };
        if value.is_empty() {
            return Err(ApiError::invalid("q", format!("expected a value after {word}:, got none")));
        }
        pairs.push((word.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(pairs)
}

/// Returns the text up to the closing quote, and the rest.
fn unquote(quoted: &str) -> ApiResult<(String, &str)> {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &quoted[at + 1..])),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    Err(ApiError::invalid("q", "expected a closing quote, got none"))
}

#[cfg(test)]
mod tests {
    use convoke_core::jobs::Status;

    use super::*;

    fn query(text: &str) -> JobQuery {
        match Filter::parse(text, 50, None).expect(text) {
            Filter::Jobs(query) => *query,
            Filter::Job(id) => panic!("{id} is a job"),
        }
    }

    #[test]
    fn every_word_of_the_bar_is_a_filter_of_the_api() {
        let read = query(r#" status:failed,timedOut type:email.send  queue:mail correlation:"a \"b\" \\c" tag:x:y "#);
        assert_eq!(read.statuses, [Status::Failed, Status::TimedOut]);
        assert_eq!(read.job_type.expect("a type").as_str(), "email.send");
        assert_eq!(read.queue.expect("a queue").as_str(), "mail");
        assert_eq!(read.correlation_id.as_deref(), Some(r#"a "b" \c"#));
        assert_eq!((read.tag.as_deref(), read.limit), (Some("x:y"), 50));
        assert_eq!(query("  "), JobQuery { limit: 50, ..JobQuery::default() });
    }

    #[test]
    fn a_value_that_was_written_is_read_back() {
        for value in ["a", "a b", "\"", "\\", "a\"b\\ c:d", "é<script>"] {
            let read = query(&written("correlation", value));
            assert_eq!(read.correlation_id.as_deref(), Some(value));
        }
    }

    #[test]
    fn an_id_is_one_job() {
        let id = "0198c0de-0000-7000-8000-000000000000";
        assert_eq!(Filter::parse(id, 1, None), Ok(Filter::Job(id.parse().expect("an id"))));
    }

    #[test]
    fn an_unknown_word_or_value_is_an_error_that_names_it() {
        for (text, part) in [
            ("failed", "word:value"),
            ("state:failed", "status, type"),
            ("status:broken", "timedOut"),
            ("queue:", "after queue:"),
            (r#"tag:"open"#, "closing quote"),
            ("queue:a queue:b", "several"),
        ] {
            let error = Filter::parse(text, 50, None).expect_err(text);
            assert!(error.message.contains(part), "{text}: {}", error.message);
        }
    }
}
