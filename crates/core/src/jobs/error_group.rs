//! Errors that differ only in numbers, ids and quoted values are one group.
//!
//! `timeout after 31 s on host 10.0.0.7` and `timeout after 29 s on host 10.0.0.9` have the same cause for a person who
//! reads a list of dead letters. The text of a group is the first line of the error with these parts replaced.

use std::iter::Peekable;
use std::str::Chars;

/// Upper bound of the characters of a group's text.
pub const GROUP_CHARS_MAX: usize = 160;

/// A word of hexadecimal digits is an id from this length on.
const HEX_MIN: usize = 8;

/// Returns the text of the group that an error belongs to: numbers and ids become `#`, quoted values `…`.
pub fn normalise(error: &str) -> String {
    let line = error.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut text = String::new();
    let mut chars = line.chars().peekable();
    // Long enough that a replacement cannot be cut in two.
    while let Some(c) = chars.peek().copied().filter(|_| text.len() < 4 * GROUP_CHARS_MAX) {
        if c.is_alphanumeric() || c == '_' {
            let word = word(&mut chars);
            text.push_str(if is_id(&word) { "#" } else { &word });
        } else {
            chars.next();
            text.push(c);
            if matches!(c, '"' | '\'' | '`') {
                quoted(c, &mut chars, &mut text);
            }
        }
    }
    // An id of several words, such as a UUID, an address or a time, is one.
    for joined in ["#-#", "#.#", "#:#", "##"] {
        while text.contains(joined) {
            text = text.replace(joined, "#");
        }
    }
    match text.char_indices().nth(GROUP_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn word(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut word = String::new();
    while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
        word.push(c);
    }
    word
}

/// Returns whether a word names one case: it begins with a digit, or is a long hexadecimal number.
fn is_id(word: &str) -> bool {
    let is_hex = word.len() >= HEX_MIN
        && word.chars().all(|c| c.is_ascii_hexdigit())
        && word.contains(|c: char| c.is_ascii_digit());
    is_hex || word.starts_with(|c: char| c.is_ascii_digit())
}

/// Replaces a quoted value, if its quote is closed. An apostrophe within a word opens none.
fn quoted(quote: char, chars: &mut Peekable<Chars<'_>>, text: &mut String) {
    let before = text.chars().rev().nth(1);
    let rest = chars.clone();
    if before.is_some_and(char::is_alphanumeric) || !rest.clone().any(|c| c == quote) {
        return;
    }
    for c in chars.by_ref() {
        if c == quote {
            break;
        }
    }
    text.push('…');
    text.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_differ_in_numbers_ids_and_quoted_values_are_one_group() {
        for (error, group) in [
            ("timeout after 31 s", "timeout after # s"),
            ("connect 10.0.0.7:5432 failed", "connect # failed"),
            ("job 0198c0de-0000-7000-8000-00000000abcd is gone", "job # is gone"),
            ("no user \"ada@example.org\" at 2026-11-18T13:50:41Z", "no user \"…\" at #"),
            ("can't open 'a b.txt'", "can't open '…'"),
            ("\n  HTTP 503\n  at line 7", "HTTP #"),
            ("key deadbeef01 is unknown", "key # is unknown"),
            ("facade error, utf8 text", "facade error, utf8 text"),
            ("", ""),
        ] {
            assert_eq!(normalise(error), group, "{error}");
        }
    }

    #[test]
    fn the_text_of_a_group_is_bounded_and_its_own_group() {
        let long = normalise(&"é".repeat(10_000));
        assert_eq!(long.chars().count(), GROUP_CHARS_MAX + 1);
        for error in ["timeout after 31 s", "no \"x\" in '1'", "a-1-2.3:4"] {
            let group = normalise(error);
            assert_eq!(normalise(&group), group);
        }
    }
}
