//! Text as it may reach a terminal.
//!
//! Hosts, users, labels, tags, paths and whatever else is read from a store were written by
//! somebody else. Control characters could move the cursor, set titles or hide lines; characters
//! that turn the direction of writing could show one name as another. All of them are escaped in
//! one place, where lines leave the program, whatever they are about.

use std::borrow::Cow;

/// Whether a character does something else than being seen.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// One line: every such character as `\n`, `\t` or `\u{1b}`.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, &|c| c.escape_default().to_string())
}

/// Several lines, as errors about configuration files have.
pub fn lines(text: &str) -> Cow<'_, str> {
    match text.contains('\n') {
        false => line(text),
        true => Cow::Owned(text.split('\n').map(line).collect::<Vec<_>>().join("\n")),
    }
}

/// A JSON text, in which such characters can stand inside strings only.
pub fn json(text: &str) -> Cow<'_, str> {
    escaped(text, &|c| {
        let mut units = [0; 2];
        c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    })
}

fn escaped<'t>(text: &'t str, escape: &dyn Fn(char) -> String) -> Cow<'t, str> {
    if !text.chars().any(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_hostile(c) {
            true => shown.push_str(&escape(c)),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r77_what_does_something_else_than_being_seen_is_escaped() {
        assert_eq!(line("plain, Ünïcode ☃ עברית"), "plain, Ünïcode ☃ עברית");
        assert_eq!(line("a\u{1b}]0;b\u{7}c"), "a\\u{1b}]0;b\\u{7}c");
        assert_eq!(line("a\nb\tc\rd"), "a\\nb\\tc\\rd");
        assert_eq!(lines("a\nb\u{9b}2J"), "a\nb\\u{9b}2J");
        assert_eq!(line("x\u{202e}fdp.exe\u{2066}\u{2028}"), "x\\u{202e}fdp.exe\\u{2066}\\u{2028}");
        let value = serde_json::json!({ "a": "\u{1b}\u{9b}\u{202e}" });
        let text = value.to_string();
        let shown = json(&text);
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
