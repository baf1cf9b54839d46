//! Rust source taken apart, as far as checks of style need it.
//!
//! Not a parser: a scanner that tells code from comments and from text in quotes, and counts
//! braces. It knows nested block comments, raw strings, byte strings, characters and lifetimes.

/// A source of which one part is kept and all else is blank; lines stay where they are.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Code without comments and without what stands in quotes.
    pub code: String,
    /// Comments only.
    pub comments: String,
}

/// A function in a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line on which it begins, from 1.
    pub line: usize,
    /// Lines from its signature to its closing brace.
    pub lines: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    BlockComment(usize),
    /// Text in quotes; whether a backslash escapes.
    Text {
        escapes: bool,
        hashes: usize,
    },
}

/// Takes a source apart.
#[must_use]
pub fn parts(text: &str) -> Parts {
    let characters: Vec<char> = text.chars().collect();
    let mut parts = Parts::default();
    let mut state = State::Code;
    let mut at = 0;
    while at < characters.len() {
        let (next, length) = step(&characters, at, state);
        // The last character of a comment is still comment, the first one already is.
        let in_comment = |state| matches!(state, State::LineComment | State::BlockComment(_));
        for &character in &characters[at..at + length] {
            let blank = if character == '\n' { '\n' } else { ' ' };
            let comment = in_comment(state) || in_comment(next);
            let code = state == State::Code && next == State::Code;
            parts.code.push(if code { character } else { blank });
            parts.comments.push(if comment { character } else { blank });
        }
        state = next;
        at += length;
    }
    parts
}

/// The state after the next token, and the token's length in characters.
fn step(characters: &[char], at: usize, state: State) -> (State, usize) {
    let here = characters[at];
    let following = characters.get(at + 1).copied().unwrap_or('\n');
    match state {
        State::LineComment if here == '\n' => (State::Code, 1),
        State::LineComment => (state, 1),
        State::BlockComment(depth) => match (here, following) {
            ('*', '/') if depth == 1 => (State::Code, 2),
            ('*', '/') => (State::BlockComment(depth - 1), 2),
            ('/', '*') => (State::BlockComment(depth + 1), 2),
            _ => (state, 1),
        },
        State::Text { escapes, hashes } => match here {
            '\\' if escapes => (state, 2.min(characters.len() - at)),
            '"' if closes(characters, at, hashes) => (State::Code, 1 + hashes),
            _ => (state, 1),
        },
        State::Code => step_in_code(characters, at, here, following),
    }
}

fn step_in_code(characters: &[char], at: usize, here: char, following: char) -> (State, usize) {
    let word_before = at > 0 && is_word(characters[at - 1]);
    match (here, following) {
        ('/', '/') => (State::LineComment, 2),
        ('/', '*') => (State::BlockComment(1), 2),
        ('"', _) => (State::Text { escapes: true, hashes: 0 }, 1),
        ('r', '"' | '#') if !word_before || characters[at - 1] == 'b' => {
            let hashes =
                characters[at + 1..].iter().take_while(|&&character| character == '#').count();
            match characters.get(at + 1 + hashes) {
                Some('"') => (State::Text { escapes: false, hashes }, 2 + hashes),
                _ => (State::Code, 1),
            }
        }
        ('\'', '\\') => {
            let end = (at + 3..characters.len()).find(|&end| characters[end] == '\'');
            (State::Code, end.map_or(2, |end| end + 1 - at))
        }
        ('\'', _) if characters.get(at + 2) == Some(&'\'') => quoted(),
        _ => (State::Code, 1),
    }
}

/// A character in quotes. It counts as code, so braces in it would be counted: callers blank them.
fn quoted() -> (State, usize) {
    (State::Code, 3)
}

fn closes(characters: &[char], at: usize, hashes: usize) -> bool {
    (1..=hashes).all(|distance| characters.get(at + distance) == Some(&'#'))
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// All functions with a body in the code of a source.
#[must_use]
pub fn functions(code: &str) -> Vec<Function> {
    let code = without_quoted_characters(code);
    let characters: Vec<char> = code.chars().collect();
    let mut found = Vec::new();
    for at in 0..characters.len() {
        let begins = characters[at..].starts_with(&['f', 'n', ' '])
            && (at == 0 || !is_word(characters[at - 1]));
        if !begins {
            continue;
        }
        let name: String =
            characters[at + 3..].iter().take_while(|&&character| is_word(character)).collect();
        if let Some(end) = body_end(&characters, at)
            && !name.is_empty()
        {
            let lines_before =
                |end: usize| characters[..end].iter().filter(|&&c| c == '\n').count();
            found.push(Function {
                name,
                line: lines_before(at) + 1,
                lines: lines_before(end) - lines_before(at) + 1,
            });
        }
    }
    found
}

/// Where the body of the function at `at` closes; `None` if it has no body.
fn body_end(characters: &[char], at: usize) -> Option<usize> {
    let mut brackets = 0i32;
    let mut braces = 0i32;
    for (offset, &character) in characters[at..].iter().enumerate() {
        match character {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 && brackets == 0 {
                    return Some(at + offset);
                }
            }
            ';' if braces == 0 && brackets == 0 => return None,
            _ => {}
        }
        if brackets < 0 || braces < 0 {
            return None;
        }
    }
    None
}

fn without_quoted_characters(code: &str) -> String {
    let characters: Vec<char> = code.chars().collect();
    let mut kept = characters.clone();
    for at in 0..characters.len().saturating_sub(2) {
        if characters[at] == '\'' && characters[at + 2] == '\'' && characters[at + 1] != '\n' {
            kept[at + 1] = ' ';
        }
    }
    kept.into_iter().collect()
}

/// The code of a source up to its unit tests.
#[must_use]
pub fn without_tests(code: &str) -> &str {
    code.find("#[cfg(test)]").map_or(code, |end| &code[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn a() { // a } comment\n    let s = \"}\"; /* { /* */ */\n}\n\
                          fn b<'x>(c: &'x str) -> char { '{' }\ntrait T { fn d(); }\n\
                          const R: &str = r#\"fn e() { \"# ;\n";

    #[test]
    fn code_comments_and_quotes_are_told_apart() {
        let parts = parts(SOURCE);
        assert_eq!(parts.code.lines().count(), SOURCE.lines().count());
        assert!(parts.comments.contains("// a } comment"));
        assert!(!parts.code.contains("comment") && !parts.code.contains("fn e"));
        assert!(!parts.code.contains("\"}\""));
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        let found = functions(&parts(SOURCE).code);
        let short: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(short, [("a", 1, 3), ("b", 4, 1)]);
    }
}
