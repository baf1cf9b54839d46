//! Paths inside snapshots: components of any bytes, shown with escapes.

use std::fmt::Write;

/// A path for display and records: valid text stays, control characters and bytes that are no
/// UTF-8 become `\xNN`.
#[must_use]
pub fn display(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                let mut buffer = [0; 4];
                escape(character.encode_utf8(&mut buffer).as_bytes(), &mut text);
            } else {
                text.push(character);
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

fn escape(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// The bytes of a path that [`display`] shows.
#[must_use]
pub fn unescaped(shown: &str) -> Vec<u8> {
    let bytes = shown.as_bytes();
    let mut path = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped = bytes.get(at..at + 4).filter(|four| four.starts_with(b"\\x"));
        let digits = escaped.and_then(|four| std::str::from_utf8(&four[2..]).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) => {
                path.push(escaped);
                at += 4;
            }
            None => {
                path.push(*byte);
                at += 1;
            }
        }
    }
    path
}

/// The components of a path in a snapshot; empty ones and "." are passed over.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|component| !component.is_empty() && *component != b".")
}

/// `directory` and `name` joined by a slash.
#[must_use]
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + name.len() + 1);
    path.extend_from_slice(directory);
    if !directory.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// What is in front of the last slash of a path.
#[must_use]
pub fn parent(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    path.get(..slash).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_bytes_are_shown_escaped() {
        assert_eq!(display(b"/a b/\xc3\xa4"), "/a b/ä");
        assert_eq!(display(b"/\xff\n\x1b"), "/\\xff\\x0a\\x1b");
    }

    #[test]
    fn paths_split_and_join() {
        let split: Vec<&[u8]> = components(b"//a/./b/").collect();
        assert_eq!(split, [b"a", b"b"]);
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!([b"/a/b".as_slice(), b"/a", b"a"].map(parent), [b"/a".as_slice(), b"", b""]);
    }
}
