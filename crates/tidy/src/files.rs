//! The files of the project, by path relative to its root.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories that hold nothing of ours.
const PASSED_OVER: [&str; 3] = [".git", "target", "data"];

/// The root of the project.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file and what is in it.
#[derive(Clone, Debug)]
pub struct File {
    /// The path from the root, with `/`.
    pub path: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl File {
    /// The content as text; bytes that are no text are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Reads one file; panics with its name if that fails.
#[must_use]
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether there is something at `path`.
#[must_use]
pub fn exists(path: &str) -> bool {
    root().join(path).exists()
}

/// All files below `directory`, sorted by path; a missing directory is empty.
#[must_use]
pub fn below(directory: &str) -> Vec<File> {
    let mut found = Vec::new();
    walk(&root(), directory, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// All Rust files of all crates.
#[must_use]
pub fn rust() -> Vec<File> {
    let mut files = below("crates");
    files.retain(|file| file.path.ends_with(".rs"));
    files
}

fn walk(root: &Path, directory: &str, found: &mut Vec<File>) {
    let Ok(entries) = fs::read_dir(root.join(directory)) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = match directory {
            "" => name.clone(),
            _ => format!("{directory}/{name}"),
        };
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && !PASSED_OVER.contains(&name.as_str()) {
            walk(root, &path, found);
        } else if kind.is_file()
            && let Ok(bytes) = fs::read(entry.path())
        {
            found.push(File { path, bytes });
        }
    }
}
