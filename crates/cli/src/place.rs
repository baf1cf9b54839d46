//! Where the store lies: here and not elsewhere (R82), in relation to what is saved and restored
//! (R52), and on what.

use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The magic numbers of file systems that live in memory (tmpfs, ramfs).
const VOLATILE: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Whether what is written there is gone after a restart.
#[must_use]
pub fn is_volatile(path: &Path) -> bool {
    rustix::fs::statfs(nearest_existing(path).as_path())
        .is_ok_and(|found| VOLATILE.contains(&(found.f_type as u64)))
}

/// Refuses the name of a store on another machine: taken for a directory of that name, it would
/// silently put the backup on the very device that it is to protect (R82).
pub fn refuse_remote(name: &Path) -> Result<()> {
    let bytes = name.as_os_str().as_bytes();
    let first = bytes.split(|byte| *byte == b'/').next().unwrap_or_default();
    let Some(length) = first.iter().position(|byte| *byte == b':') else {
        return Ok(());
    };
    // `user@host:` is how other programs name a place reached by ssh.
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-._@".contains(byte);
    let scheme = &first[..length];
    if length < 2 || !scheme[0].is_ascii_alphanumeric() || !scheme.iter().all(is_scheme) {
        return Ok(());
    }
    let scheme = String::from_utf8_lossy(scheme);
    let shown = name.display();
    let advice = match scheme.eq_ignore_ascii_case("file") {
        true => "name the directory itself, as in '-r /mnt/backup'".to_owned(),
        false => format!(
            "mount it and name the directory. If '{shown}' is the name of a directory here, write \
             './{shown}'"
        ),
    };
    Err(Error::invalid(format!(
        "the store '{shown}' cannot be reached: a store is a local directory, and '{scheme}:' is \
         not understood; {advice}"
    )))
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
    let real =
        existing.canonicalize().context(|| format!("finding out where '{}' is", path.display()))?;
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

/// Whether a path leads into the store, be it by another place where the store is mounted.
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

/// Refuses sources inside the store. For sources that contain the store, the patterns that leave
/// it out.
pub fn patterns_without_store(sources: &[PathBuf], store: &Path) -> Result<Vec<String>> {
    let store = real(store)?;
    let mut patterns = Vec::new();
    for source in sources {
        let real_source = real(source)?;
        if is_inside(source, &store)? {
            return Err(Error::invalid(format!(
                "'{}' lies inside the store; a store cannot be backed up into itself",
                source.display()
            )));
        }
        let Ok(below) = store.strip_prefix(&real_source) else {
            continue;
        };
        patterns.push(pattern_of(&in_snapshot(source)?.join(below))?);
    }
    patterns.sort_unstable();
    patterns.dedup();
    Ok(patterns)
}

/// Where a source stands in the snapshot, which is what patterns are matched with: at its absolute
/// path, or at its relative one below the root; one that leads upwards becomes absolute.
fn in_snapshot(source: &Path) -> Result<PathBuf> {
    let leads_upwards = source.components().any(|part| part == Component::ParentDir);
    let source = match leads_upwards {
        true => real(source)?,
        false => source.to_owned(),
    };
    Ok(without_dots(&Path::new("/").join(source)))
}

/// A pattern that matches exactly this directory.
fn pattern_of(directory: &Path) -> Result<String> {
    let text = directory.to_str().ok_or_else(|| {
        Error::invalid(format!(
            "the store '{}' lies inside a source and cannot be left out, because its path is not \
             valid UTF-8; move it elsewhere",
            directory.display()
        ))
    })?;
    let mut pattern = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '{' | '}' | '!' | '#' | '\\' | ' ') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('/');
    Ok(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_engine::patterns::Patterns;

    #[test]
    fn r82_names_with_a_scheme_are_no_directories() {
        for refused in [
            "sftp:user@host:/x",
            "s3:bucket",
            "rest:https://host/",
            "file:///mnt/x",
            "ssh://host/x",
            "user@host:backup",
            "host:/backup",
            "B2:x",
        ] {
            assert!(refuse_remote(Path::new(refused)).is_err(), "{refused}");
        }
        for path in ["./sftp:x", "/mnt/s3:x", "a/b:c", "x:y", ":x", "backup", "a b:c", "../s3:x"] {
            assert!(refuse_remote(Path::new(path)).is_ok(), "{path}");
        }
    }

    #[test]
    fn r52_sources_and_store_must_not_overlap() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir_all(path("data/my [store] ä/keys")).unwrap();
        std::os::unix::fs::symlink(path("data"), path("link")).unwrap();
        let store = path("data/my [store] ä");
        for inside in ["data/my [store] ä", "data/my [store] ä/keys", "link/my [store] ä/x"] {
            assert!(patterns_without_store(&[path(inside)], &store).is_err(), "{inside}");
            assert!(refuse_inside(&path(inside), &store).is_err(), "{inside}");
        }
        let patterns = patterns_without_store(&[path("link")], &store).unwrap();
        let patterns = Patterns::build(&patterns, &[]).unwrap();
        // The walk meets the store below the source as it was written.
        let walked = path("link/my [store] ä");
        let bytes = walked.as_os_str().as_encoded_bytes();
        assert!(patterns.matches(bytes, true, false), "{}", walked.display());
        let beside = path("link/my store");
        assert!(!patterns.matches(beside.as_os_str().as_encoded_bytes(), true, false));
        assert!(patterns_without_store(&[path("elsewhere")], &store).unwrap().is_empty());
        assert_eq!(in_snapshot(Path::new("./a/./b")).unwrap(), Path::new("/a/b"));
        assert_eq!(in_snapshot(Path::new("/a/b")).unwrap(), Path::new("/a/b"));
        assert!(refuse_inside(&path("data"), &store).is_ok());
        assert!(refuse_inside(&path("data/new/deep"), &store).is_ok());
        assert!(refuse_inside(&path("data/x/../my [store] ä"), &store).is_err());
    }
}
