//! The place where a new store is made, where that is a directory of this machine: which places are
//! refused, and what is taken away again if making the store fails.
//!
//! Rules:
//! - A store lies in no other store: whoever collects, copies or deletes the outer one would meet
//!   its files.
//! - A path in the way of Windows is not taken for the name of a directory here.
//! - What was there before stays, and what another attempt makes meanwhile: only directories that
//!   are empty are removed. The engine takes back the objects of an attempt that failed.

use crate::store_path;
use onefold_format::configuration::{CONFIGURATION_MAX_BYTES, Configuration};
use onefold_format::layout;
use onefold_types::{Error, ErrorKind, Result};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories of a store that is not made yet.
const FIRST_DIRECTORIES: [&str; 4] = [layout::KEYS, layout::GENERATIONS, layout::COPIES, "tmp"];

/// A place where a store is about to be made.
pub struct Place {
    /// Directories that are not there yet, the innermost first.
    missing: Vec<PathBuf>,
    /// Directories of a store that are not there yet.
    new: Vec<PathBuf>,
}

impl Place {
    /// Looks at a directory.
    ///
    /// Errors: `Invalid` for a name that means something else elsewhere, or inside another store.
    pub fn of(store: &Path) -> Result<Self> {
        refuse_foreign_spelling(store)?;
        refuse_inside_another(store)?;
        let store = std::path::absolute(store).unwrap_or_else(|_| store.to_owned());
        let is_missing = |path: &&Path| path.symlink_metadata().is_err();
        let missing = store.ancestors().take_while(is_missing).map(Path::to_owned).collect();
        let new = FIRST_DIRECTORIES.map(|name| store.join(name)).into_iter();
        let new = new.filter(|path| is_missing(&path.as_path())).collect();
        Ok(Self { missing, new })
    }

    /// Takes away the directories that a failed attempt has made. One that is not empty stays:
    /// another attempt may have succeeded meanwhile.
    pub fn clear(&self) {
        for directory in self.new.iter().chain(&self.missing) {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Refuses `C:\x`, `\\nas\x` and `//nas/x`.
fn refuse_foreign_spelling(store: &Path) -> Result<()> {
    let bytes = store.as_os_str().as_bytes();
    let shown = store.display();
    let is_drive = matches!(bytes, [letter, b':', ..] if letter.is_ascii_alphabetic());
    if is_drive || bytes.starts_with(b"\\\\") {
        return Err(Error::invalid(format!(
            "'{shown}' is a path of Windows, and no place here: mount what it names and give the \
             directory. If '{shown}' is to be the name of a directory here, write './{shown}'"
        )));
    }
    match bytes {
        [b'/', b'/', third, ..] if *third != b'/' => Err(Error::invalid(format!(
            "'{shown}' looks like a share of another machine: mount it and give the directory. If \
             a directory of this machine is meant, write '/{}'",
            shown.to_string().trim_start_matches('/')
        ))),
        _ => Ok(()),
    }
}

/// Refuses a place below the directory of a store.
fn refuse_inside_another(store: &Path) -> Result<()> {
    let real = store_path::real(store)?;
    let outer = real.ancestors().skip(1).find(|above| is_store(above));
    match outer {
        None => Ok(()),
        Some(outer) => Err(Error::invalid(format!(
            "'{}' lies inside the store '{}': a store needs a place of its own, beside the other \
             one",
            store.display(),
            outer.display()
        ))),
    }
}

/// Whether a directory holds a store: many programs call a file 'config'.
fn is_store(directory: &Path) -> bool {
    [layout::CONFIGURATION, layout::CONFIGURATION_COPY].iter().any(|name| {
        let path = directory.join(name);
        let is_short = |found: &fs::Metadata| found.len() <= CONFIGURATION_MAX_BYTES as u64;
        let may_be = path.metadata().is_ok_and(|found| found.is_file() && is_short(&found));
        let read = may_be.then(|| fs::read(&path).ok()).flatten();
        read.is_some_and(|bytes| match Configuration::decode(&bytes) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::NewerFormat,
        })
    })
}
