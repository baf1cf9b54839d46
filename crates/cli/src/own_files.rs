//! Small JSON files of the program's own, in the user's directories for caches and state.
//!
//! They are a convenience: one that cannot be read, or is no regular file, is taken for none.
//!
//! Concurrency: several commands may write the same file at the same time. Each writes a draft of
//! its own, and the last one to rename it wins.

use onefold_store::open_own;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// A sane file is far smaller.
const LENGTH_MAX_BYTES: u64 = 64 << 10;

/// What a file holds, if it can be read and understood.
pub fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut bytes = Vec::new();
    open_own(path).ok()?.take(LENGTH_MAX_BYTES).read_to_end(&mut bytes).ok()?;
    // One that is too long is cut off, which no JSON is.
    serde_json::from_slice(&bytes).ok()
}

/// Writes a file, and the directories above it if need be.
pub fn write(path: &Path, content: &impl Serialize) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let draft = path.with_extension(std::process::id().to_string());
    // What an earlier process of that number has left, or lies there.
    let _ = std::fs::remove_file(&draft);
    let bytes = serde_json::to_vec_pretty(content)?;
    let written = File::create_new(&draft)
        .and_then(|mut file| file.write_all(&bytes))
        .and_then(|()| std::fs::rename(&draft, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&draft)))
}

/// The directory that `own` names, else `onefold` in the one that `shared` names, else in
/// `otherwise` below the home directory; it need not exist yet.
pub fn directory(own: &str, shared: &str, otherwise: &str) -> Option<PathBuf> {
    let variable = |name: &str| -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    };
    if let Some(directory) = variable(own) {
        return Some(PathBuf::from(directory));
    }
    let shared = variable(shared).map(PathBuf::from);
    let base = shared.or_else(|| Some(PathBuf::from(variable("HOME")?).join(otherwise)))?;
    Some(base.join("onefold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r138_what_lies_in_the_place_of_a_file_or_of_its_draft_holds_nobody_up() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notes.json");
        let draft = path.with_extension(std::process::id().to_string());
        for pipe in [&path, &draft] {
            assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
        }
        assert_eq!(read::<u64>(&path), None);
        write(&path, &7_u64).unwrap();
        assert_eq!(read::<u64>(&path), Some(7));
        assert!(!draft.exists());
        // One that is too long is none.
        std::fs::write(&path, format!("{}7", " ".repeat(LENGTH_MAX_BYTES as usize - 1))).unwrap();
        assert_eq!(read::<u64>(&path), Some(7));
        std::fs::write(&path, format!("{}7", " ".repeat(LENGTH_MAX_BYTES as usize))).unwrap();
        assert_eq!(read::<u64>(&path), None);
    }
}
