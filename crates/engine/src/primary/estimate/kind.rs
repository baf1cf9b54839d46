//! What kind of file a name stands for: its ending, and the class that the ending belongs to.

/// The longest ending that counts as a kind of file.
const KIND_CHARS_MAX: usize = 8;

/// The kind of files whose names have no ending.
pub const NO_ENDING: &str = "no ending";

/// Classes, and the endings that belong to them.
const CLASSES: [(&str, &[&str]); 10] = [
    (
        "archives",
        &["7z", "bz2", "cab", "deb", "gz", "jar", "rar", "rpm", "tgz", "xz", "zip", "zst"],
    ),
    ("audio and video", &["aac", "avi", "flac", "m4a", "mkv", "mov", "mp3", "mp4", "ogg", "wav"]),
    ("databases", &["db", "dbf", "edb", "mdb", "mdf", "sqlite", "sqlite3"]),
    ("disk images", &["img", "iso", "qcow2", "vdi", "vhd", "vhdx", "vmdk", "wim"]),
    ("documents", &["doc", "ppt", "pdf", "rtf", "xls", "eml", "msg", "ps"]),
    ("documents, packed", &["docx", "epub", "odp", "ods", "odt", "pptx", "xlsx"]),
    ("images", &["gif", "heic", "jpeg", "jpg", "png", "tif", "tiff", "webp"]),
    ("programs", &["a", "dll", "dylib", "exe", "ko", "lib", "o", "rlib", "so", "sys", "wasm"]),
    ("source texts", &["c", "cc", "cpp", "cs", "go", "h", "hpp", "java", "js", "py", "rs", "ts"]),
    ("texts", &["csv", "html", "json", "log", "md", "rst", "toml", "txt", "xml", "yaml", "yml"]),
];

/// The class of all other files.
pub const OTHERS: &str = "others";

/// A file's kind: its ending in lower case, if it has a short one.
#[must_use]
pub fn kind_of(path: &[u8]) -> Option<String> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    let kind = name.get(dot + 1..)?;
    let is_short = (1..=KIND_CHARS_MAX).contains(&kind.len());
    let is_plain = kind.iter().all(u8::is_ascii_alphanumeric);
    (dot > 0 && is_short && is_plain).then(|| String::from_utf8_lossy(kind).to_ascii_lowercase())
}

/// The class that files of a kind belong to.
#[must_use]
pub fn class_of(kind: &str) -> &'static str {
    let found = CLASSES.iter().find(|(_, endings)| endings.contains(&kind));
    found.map_or(OTHERS, |(class, _)| class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_short_endings() {
        let kind = |path: &str| kind_of(path.as_bytes());
        assert_eq!(kind("a/b.TXT").as_deref(), Some("txt"));
        for path in ["a.b/c", ".hidden", "a.", "a.toolongending", "a.b~"] {
            assert_eq!(kind(path), None, "{path}");
        }
    }

    #[test]
    fn every_ending_is_of_one_class() {
        assert_eq!((class_of("vhdx"), class_of("strange")), ("disk images", OTHERS));
        let mut endings: Vec<&str> = CLASSES.iter().flat_map(|class| class.1).copied().collect();
        let count = endings.len();
        endings.sort_unstable();
        endings.dedup();
        assert_eq!(endings.len(), count);
        assert!(endings.iter().all(|ending| kind_of(format!("x.{ending}").as_bytes()).is_some()));
    }
}
