//! Where a store that is a directory lies in relation to what is saved and restored (R52), and on
//! what. And what the user's patterns are compared with (R85).

use crate::output::Output;
use onefold_engine::patterns::Patterns;
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The magic numbers of file systems that live in memory (tmpfs, ramfs).
const VOLATILE: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// Patterns that a warning names.
const UNMATCHED_SHOWN: usize = 8;

/// Whether what is written there is gone after a restart.
#[must_use]
pub fn is_volatile(path: &Path) -> bool {
    rustix::fs::statfs(nearest_existing(path).as_path())
        .is_ok_and(|found| VOLATILE.contains(&(found.f_type as u64)))
}

/// The path itself, or the nearest directory above it that exists.
fn nearest_existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute
        .ancestors()
        .find(|ancestor| ancestor.symlink_metadata().is_ok())
        .unwrap_or(Path::new("/"))
        .to_owned()
}

/// The path without symbolic links; what of it does not exist yet is kept as it is.
pub fn real(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)
        .context(|| format!("finding out where '{}' is", path.display()))?;
    let existing = nearest_existing(&absolute);
    let real = existing.canonicalize().or_else(|error| {
        // A pipe that this process has open is called /dev/fd/3, which leads to no path.
        let above = existing.parent().and_then(|above| above.canonicalize().ok());
        above.zip(existing.file_name()).map(|(above, name)| above.join(name)).ok_or(error)
    });
    let real = real.context(|| format!("finding out where '{}' is", path.display()))?;
    match absolute.strip_prefix(&existing) {
        Ok(rest) if !rest.as_os_str().is_empty() => Ok(without_dots(&real.join(rest))),
        _ => Ok(real),
    }
}

/// The path with `..` taken off by name.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// Device and inode of the store's directory, by which it is known under any other path.
#[must_use]
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// Whether a path leads into the store, be it by another path where the store is mounted.
fn is_inside(path: &Path, store: &Path) -> Result<bool> {
    let store_identity = identity(store);
    let real_path = real(path)?;
    let is_mounted_above = || real_path.ancestors().any(|above| identity(above) == store_identity);
    Ok(real_path.starts_with(real(store)?) || (store_identity.is_some() && is_mounted_above()))
}

/// Refuses to write inside the store.
pub fn refuse_inside(target: &Path, store: &Path) -> Result<()> {
    if is_inside(target, store)? {
        return Err(Error::invalid(format!(
            "'{}' lies inside the store '{}'",
            target.display(),
            store.display()
        )));
    }
    Ok(())
}

/// Refuses sources inside the store; whether one of them contains it, so that it is left out.
pub fn is_store_among(sources: &[PathBuf], store: &Path) -> Result<bool> {
    let store = real(store)?;
    let mut contains = false;
    for source in sources {
        if is_inside(source, &store)? {
            return Err(Error::invalid(format!(
                "'{}' lies inside the store; a store cannot be backed up into itself",
                source.display()
            )));
        }
        contains |= store.starts_with(real(source)?);
    }
    Ok(contains)
}

/// Patterns as they were given: any bytes.
#[must_use]
pub fn as_given(patterns: &[OsString]) -> Vec<Vec<u8>> {
    patterns.iter().map(|pattern| pattern.as_bytes().to_vec()).collect()
}

/// The patterns, with `~/` at the beginning of one standing for the home directory: no shell
/// expands it in a profile, in a file, or between quotes.
pub fn with_home(patterns: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    patterns
        .into_iter()
        .map(|pattern| {
            let (sign, rest) = match pattern.strip_prefix(b"!") {
                Some(rest) => (&b"!"[..], rest),
                None => (&b""[..], pattern.as_slice()),
            };
            match rest.strip_prefix(b"~/") {
                Some(below) => Ok([sign, &home_as_pattern()?, b"/", below].concat()),
                None => Ok(pattern),
            }
        })
        .collect()
}

fn home_as_pattern() -> Result<Vec<u8>> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home
        .ok_or_else(|| Error::invalid("a pattern begins with '~/', but HOME is not set"))?
        .into_encoded_bytes();
    let end = home.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let mut pattern = Vec::with_capacity(home.len());
    for byte in home.into_iter().take(end) {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'{' | b'}' | b'!' | b'#' | b'\\' | b' ') {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    Ok(pattern)
}

/// Tells of patterns that matched nothing: what they are to leave out may be saved in silence
/// (R85).
pub fn warn_of_unmatched(output: &Output, patterns: &Patterns) {
    let unmatched: Vec<&str> =
        patterns.counts().filter(|(_, count)| *count == 0).map(|(text, _)| text).collect();
    let shown: Vec<String> =
        unmatched.iter().take(UNMATCHED_SHOWN).map(|text| format!("'{text}'")).collect();
    let more = unmatched.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let noun = if unmatched.len() == 1 { "pattern" } else { "patterns" };
    if !unmatched.is_empty() {
        output.warning(&format!(
            "the {noun} {}{more} matched nothing; one with a slash is compared with whole paths, \
             as 'onefold ls' shows them, and what lies in a directory that is left out is not \
             looked at",
            shown.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r52_sources_and_store_must_not_overlap() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir_all(path("data/my [store] ä/keys")).unwrap();
        std::os::unix::fs::symlink(path("data"), path("link")).unwrap();
        let store = path("data/my [store] ä");
        for inside in ["data/my [store] ä", "data/my [store] ä/keys", "link/my [store] ä/x"] {
            assert!(is_store_among(&[path(inside)], &store).is_err(), "{inside}");
            assert!(refuse_inside(&path(inside), &store).is_err(), "{inside}");
        }
        assert!(is_store_among(&[path("elsewhere"), path("link")], &store).unwrap());
        assert!(!is_store_among(&[path("elsewhere")], &store).unwrap());
        assert!(refuse_inside(&path("data"), &store).is_ok());
        assert!(refuse_inside(&path("data/new/deep"), &store).is_ok());
        assert!(refuse_inside(&path("data/x/../my [store] ä"), &store).is_err());
    }
}
