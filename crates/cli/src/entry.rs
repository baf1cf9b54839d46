//! Entries of snapshots, for people and for programs.

use crate::output::put_path;
use crate::time;
use onefold_engine::tree::path;
use onefold_format::node::{Entry, EntryKind};
use serde_json::{Value, json};

/// The kind of an entry in a word.
#[must_use]
pub fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink => "symlink",
        EntryKind::CharacterDevice => "character-device",
        EntryKind::BlockDevice => "block-device",
        EntryKind::Fifo => "fifo",
        EntryKind::Socket => "socket",
    }
}

fn kind_letter(kind: EntryKind) -> char {
    match kind {
        EntryKind::File => '-',
        EntryKind::Directory => 'd',
        EntryKind::Symlink => 'l',
        EntryKind::CharacterDevice => 'c',
        EntryKind::BlockDevice => 'b',
        EntryKind::Fifo => 'p',
        EntryKind::Socket => 's',
    }
}

/// Kind and permissions as `ls -l` shows them.
#[must_use]
pub fn mode_text(kind: EntryKind, mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(kind_letter(kind));
    for (shift, special, letters) in
        [(6, 0o4000, ['s', 'S']), (3, 0o2000, ['s', 'S']), (0, 0o1000, ['t', 'T'])]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letters[0],
            (true, false) => letters[1],
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The entry as a line; `full_path` is shown, not the entry's own name.
#[must_use]
pub fn line(full_path: &[u8], entry: &Entry, long: bool) -> String {
    let shown = path::display(full_path);
    if !long {
        return shown;
    }
    let target = match entry.kind {
        EntryKind::Symlink => format!(" -> {}", path::display(&entry.target)),
        _ => String::new(),
    };
    format!(
        "{} {:>5} {:>5} {:>11} {} {shown}{target}",
        mode_text(entry.kind, entry.mode),
        entry.uid,
        entry.gid,
        size(entry),
        time::local_of_file(entry.modified),
    )
}

fn size(entry: &Entry) -> u64 {
    match entry.kind {
        EntryKind::Directory => entry.totals.bytes,
        _ => entry.size,
    }
}

/// The entry as JSON fields.
#[must_use]
pub fn fields(full_path: &[u8], entry: &Entry) -> Value {
    let mut fields = json!({
        "type": kind_name(entry.kind),
        "mode": entry.mode,
        "permissions": mode_text(entry.kind, entry.mode),
        "uid": entry.uid,
        "gid": entry.gid,
        "links": entry.links,
        "size": size(entry),
        "modified": time::universal_of_file(entry.modified),
        "changed": time::universal_of_file(entry.changed),
        "inode": entry.inode,
    });
    put_path(&mut fields, "path", full_path);
    if entry.kind == EntryKind::Symlink {
        put_path(&mut fields, "target", &entry.target);
    }
    if entry.kind == EntryKind::Directory {
        fields["entries"] = entry.totals.entries.into();
    }
    if let Some(content) = entry.content {
        fields["content"] = content.fingerprint.to_string().into();
        fields["level"] = content.level.0.into();
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_shown_as_ls_does() {
        assert_eq!(mode_text(EntryKind::File, 0o644), "-rw-r--r--");
        assert_eq!(mode_text(EntryKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(EntryKind::File, 0o4711), "-rws--x--x");
        assert_eq!(mode_text(EntryKind::File, 0o6600), "-rwS--S---");
    }

    #[test]
    fn odd_names_are_escaped_in_lines_and_lossless_in_json() {
        let entry = Entry::default();
        assert_eq!(line(b"/a\nb\xff", &entry, false), "/a\\x0ab\\xff");
        let fields = fields(b"/a\nb\xff", &entry);
        assert_eq!(fields["path_hex"], hex::encode(b"/a\nb\xff"));
        assert_eq!(super::fields(b"/a\nb", &entry)["path"], "/a\nb");
    }
}
