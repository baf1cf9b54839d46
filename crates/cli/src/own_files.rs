//! Small JSON files of the program's own, in the user's directories for caches and state.
//!
//! They are a convenience: one that cannot be read is taken for none.
//!
//! Concurrency: several commands may write the same file at the same time. Each writes a draft of
//! its own, and the last one to rename it wins.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// A sane file is far smaller.
const LENGTH_MAX_BYTES: u64 = 64 << 10;

/// What a file holds, if it can be read and understood.
pub fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let is_small = std::fs::metadata(path).is_ok_and(|it| it.len() <= LENGTH_MAX_BYTES);
    let bytes = if is_small { std::fs::read(path).ok()? } else { return None };
    serde_json::from_slice(&bytes).ok()
}

/// Writes a file, and the directories above it if need be.
pub fn write(path: &Path, content: &impl Serialize) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let draft = path.with_extension(std::process::id().to_string());
    let written = std::fs::write(&draft, serde_json::to_vec_pretty(content)?)
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
