//! What could not be read of a share, written down in it: the mount and the jobs write, `status`
//! shows, scrubs take out what they could read.
//!
//! One line each, most of them `<path>: <what>`, the path escaped. Beyond a greatest length the
//! last line says that there is more ([`MORE`]), and no further one is added until some were taken
//! out.
//!
//! Concurrency: whoever writes holds a lock of the kernel on the file for as long as that takes.

use super::control::{PROBLEMS, own};
use super::share::{CONTROL, Share};
use crate::tree::path;
use onefold_types::Result;
use onefold_types::error::Context;
use rustix::fs::{AtFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};

/// Behind this many bytes only that there is more is written down.
pub const PROBLEMS_MAX_BYTES: u64 = 256 << 10;
/// A path of so many bytes no system call takes.
pub const PATH_MAX_BYTES: usize = 4096;

/// What stands for problems that are not written down.
pub const MORE: &str = "and more than is written down here; a scrub of everything tells of all";

impl Share {
    /// Adds a line to what could not be read, unless there are very many.
    pub fn note_problem(&self, problem: &str) -> Result<()> {
        append(&self.locked(OFlags::WRONLY)?, problem)
    }

    /// Takes lines out of what could not be read, and adds others, each once.
    pub fn settle_problems(
        &self,
        stays: &mut dyn FnMut(&str) -> bool,
        more: &[String],
    ) -> Result<()> {
        let mut file = self.locked(OFlags::RDWR)?;
        let lines = lines_of(&mut file)?;
        let mut left: Vec<&String> = lines.iter().filter(|line| stays(line)).collect();
        if left.len() < lines.len() {
            // Who knows how many are left of those that were not written down: who meets them says
            // so again.
            left.retain(|line| *line != MORE);
        }
        let there: HashSet<&String> = left.iter().copied().collect();
        let new: Vec<&String> = more.iter().filter(|line| !there.contains(line)).collect();
        if left.len() == lines.len() && new.is_empty() {
            return Ok(());
        }
        file.set_len(0).context(|| "clearing problems")?;
        left.into_iter().chain(new).try_for_each(|line| append(&file, line))
    }

    /// Whether a line tells of a file that is not there any more. Names may have colons, so one is
    /// there if anything is that the line may mean.
    pub fn is_over(&self, line: &str) -> bool {
        let second_copies = format!("/{CONTROL}/");
        if !line.starts_with('/') || line.starts_with(&second_copies) {
            return false;
        }
        let is_gone = |end: usize| {
            let path = path::unescaped(&line[1..end]);
            let path = if path.is_empty() { b".".to_vec() } else { path };
            if path.len() >= PATH_MAX_BYTES {
                // It is not known.
                return false;
            }
            let found = rustix::fs::statat(self.directory(), path, AtFlags::SYMLINK_NOFOLLOW);
            matches!(found, Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG))
        };
        line.match_indices(": ").all(|(end, _)| is_gone(end)) && line.contains(": ")
    }

    /// What could not be read, and was not read since, of what is there still; that there is more
    /// comes last.
    pub fn problems(&self) -> Result<Vec<String>> {
        let mut lines = lines_of(&mut self.file(PROBLEMS, OFlags::RDONLY | OFlags::CREATE)?)?;
        lines.retain(|line| !self.is_over(line));
        lines.sort_by(|one, other| (one == MORE, one).cmp(&(other == MORE, other)));
        lines.dedup();
        Ok(lines)
    }

    /// The file, for no longer than lines take to be written.
    fn locked(&self, access: OFlags) -> Result<File> {
        let file = self.file(PROBLEMS, access | OFlags::APPEND | OFlags::CREATE)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|errno| own(PROBLEMS, errno))?;
        Ok(file)
    }
}

fn append(mut file: &File, problem: &str) -> Result<()> {
    let what = || "writing a problem down";
    let length = file.metadata().context(what)?.len();
    if length >= PROBLEMS_MAX_BYTES {
        return Ok(());
    }
    let mut line = problem.replace('\n', " ") + "\n";
    if length + line.len() as u64 >= PROBLEMS_MAX_BYTES {
        line.extend([MORE, "\n"]);
    }
    file.write_all(line.as_bytes()).context(what)
}

fn lines_of(file: &mut File) -> Result<Vec<String>> {
    let mut text = Vec::new();
    file.take(2 * PROBLEMS_MAX_BYTES).read_to_end(&mut text).context(|| "reading problems")?;
    Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}
