//! Names of files that are to stand in the place of others.
//!
//! A name says which process made it, and has a number that no other of that process has: numbers
//! begin at the clock's nanoseconds, so one that is below those of a running restore was made by a
//! process that had the same number before. A restore removes what earlier ones have left in a
//! directory when it looks how names are spelled there.

use super::target::Directory;
use std::sync::atomic::{AtomicU64, Ordering};

const PREFIX: &[u8] = b".onefold-restoring-";

/// The names that one restore gives.
pub struct TemporaryNames {
    process: i32,
    first: u64,
    next: AtomicU64,
}

impl TemporaryNames {
    /// For a restore that begins now.
    #[must_use]
    pub fn new(now_ns: i64) -> Self {
        let first = u64::try_from(now_ns).unwrap_or(0);
        let process = rustix::process::getpid().as_raw_nonzero().get();
        Self { process, first, next: AtomicU64::new(first) }
    }

    /// A name that nobody has.
    pub fn next(&self) -> Vec<u8> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut name = PREFIX.to_vec();
        name.extend_from_slice(format!("{}-{number}", self.process).as_bytes());
        name
    }

    /// Whether a name was given by a restore that is no more.
    #[must_use]
    pub fn is_left_over(&self, name: &[u8]) -> bool {
        let Some((process, number)) = parse(name) else {
            return false;
        };
        if process == self.process {
            return number < self.first;
        }
        let process = rustix::process::Pid::from_raw(process);
        process.is_some_and(|process| {
            rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
        })
    }

    /// Removes what is left over of `names`, which are in the directory. What cannot be removed
    /// stays for the next restore.
    pub fn remove_left_over<'a>(
        &self,
        directory: &Directory,
        names: impl Iterator<Item = &'a [u8]>,
    ) {
        for name in names.filter(|name| self.is_left_over(name)) {
            let _ = directory.unlink(name);
        }
    }
}

/// The process and the number in a name.
fn parse(name: &[u8]) -> Option<(i32, u64)> {
    let rest = std::str::from_utf8(name.strip_prefix(PREFIX)?).ok()?;
    let (process, number) = rest.split_once('-')?;
    let process = process.parse().ok().filter(|process| *process > 0)?;
    Some((process, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_restores_that_are_no_more_are_left_over() {
        let names = TemporaryNames::new(1000);
        let given = names.next();
        assert!(!names.is_left_over(&given) && given != names.next());
        let named = |process: &str, number: &str| {
            names.is_left_over(format!(".onefold-restoring-{process}-{number}").as_bytes())
        };
        let me = std::process::id().to_string();
        assert!(named(&me, "999") && !named(&me, "1000") && !named("1", "5"));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id().to_string();
        child.wait().unwrap();
        assert!(named(&process, "5"));
        for (process, number) in [("x", "5"), ("-1", "5"), ("0", "5"), (&process, "x"), ("", "")] {
            assert!(!named(process, number), "{process} {number}");
        }
        assert!(!names.is_left_over(b"a file"));
    }
}
