//! JSON for people: indented, with every number as it was sent.
//!
//! The text is not parsed into values: a number beyond 2^53 keeps all its digits, and fields keep their order.

/// Values nested deeper than this are not indented further.
const INDENT_MAX: usize = 40;

/// Indents a JSON text. A text that is none is returned as it is.
pub fn pretty(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() * 2);
    let (mut depth, mut chars) = (0usize, text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                shown.push('"');
                while let Some(c) = chars.next() {
                    shown.push(c);
                    match c {
                        '\\' => shown.extend(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '{' | '[' => {
                shown.push(c);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(close) = chars.next_if(|c| matches!(c, '}' | ']')) {
                    shown.push(close);
                } else {
                    depth += 1;
                    line(&mut shown, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut shown, depth);
                shown.push(c);
            }
            ',' => {
                shown.push(',');
                line(&mut shown, depth);
            }
            ':' => shown.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => shown.push(c),
        }
    }
    shown
}

fn line(shown: &mut String, depth: usize) {
    shown.push('\n');
    shown.extend(std::iter::repeat_n("  ", depth.min(INDENT_MAX)));
}

/// Returns the first characters of a text on one line.
pub fn brief(text: &str, chars_max: usize) -> String {
    let mut brief: String = text.chars().take(chars_max).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(chars_max).is_some() {
        brief.push('…');
    }
    brief
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_and_its_numbers_stay_as_they_were_sent() {
        let text = r#"{"a":[1,{"n":9007199254740993}],"s":"x,{\"y\":[1]}","e":{ },"f":[],"big":1e400}"#;
        let shown = "{\n  \"a\": [\n    1,\n    {\n      \"n\": 9007199254740993\n    }\n  ],\n  \"s\": \"x,{\\\"y\\\":[1]}\",\n  \"e\": {},\n  \"f\": [],\n  \"big\": 1e400\n}";
        assert_eq!(pretty(text), shown);
        assert_eq!((pretty("null").as_str(), pretty(r#""a b""#).as_str()), ("null", r#""a b""#));
    }

    #[test]
    fn a_brief_text_is_one_line() {
        assert_eq!((brief("a\nb", 5).as_str(), brief("abcdef", 3).as_str()), ("a b", "abc…"));
    }
}
