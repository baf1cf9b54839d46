//! Deletes items of the target that are not in the snapshot.
//!
//! Never through a symbolic link (a link is removed, what it points to is not), never on another
//! file system (a mount point stays), and never the store that is being read, wherever it is and
//! under whatever path: a directory that holds this store's configuration file stays.
//!
//! The walk keeps its own stack of directories, whose handles are opened again as needed, so depth
//! costs neither stack nor handles.

use super::RestoreOptions;
use super::target::{Directory, is_type};
use crate::repository::Repository;
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, limits};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

/// Deletes, and knows what must stay.
pub struct Deleter {
    /// The configuration of the store, by which its directory is recognised.
    configuration: Vec<u8>,
    /// Device and inode of a directory that stays, without a word: the store's own.
    spared: Option<(u64, u64)>,
}

/// What a deletion did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deleted {
    /// Items removed.
    pub items: u64,
}

struct Step {
    directory: Arc<Directory>,
    name: Vec<u8>,
    names: Vec<Vec<u8>>,
    /// Whether something in it stays, so that it stays too.
    stays: bool,
}

impl Deleter {
    /// A deleter for a restore from `repository`.
    ///
    /// Errors: `Invalid` if the target is the root directory and all of the snapshot is restored,
    /// so that whatever is not in it would be deleted; or if the target lies in the store.
    pub fn new(repository: &Repository, options: &RestoreOptions) -> Result<Self> {
        let configuration = match repository.store().get(&Key::new(layout::CONFIGURATION)?) {
            // The store is known by its copy alone; `spared` still names its directory.
            Err(error) if error.is_lost() => Vec::new(),
            configuration => configuration?,
        };
        let deleter = Self { configuration, spared: options.spared };
        let target = &options.target;
        let target = target
            .canonicalize()
            .context(|| format!("looking at the target '{}'", target.display()))?;
        if target.parent().is_none() && options.include.is_empty() {
            return Err(Error::invalid(
                "deleting all that is not in the snapshot is refused where the target is the root \
                 directory: say with --include in which directories",
            ));
        }
        for above in target.ancestors() {
            let found = std::fs::read(above.join(layout::CONFIGURATION));
            match found.context(|| "looking whether the target lies in the store") {
                Err(error) if error.kind() == ErrorKind::Exhausted => return Err(error),
                Ok(bytes) if deleter.is_ours(&bytes) => {
                    return Err(Error::invalid(format!(
                        "deleting is refused: the target '{}' lies in the store",
                        target.display()
                    )));
                }
                _ => {}
            }
        }
        Ok(deleter)
    }

    fn is_ours(&self, bytes: &[u8]) -> bool {
        !self.configuration.is_empty() && bytes == self.configuration
    }

    /// Whether the directory is the store's.
    fn is_store(&self, directory: &Directory) -> Result<bool> {
        let name = layout::CONFIGURATION.as_bytes();
        let Some(stat) = directory.stat(name)? else {
            return Ok(false);
        };
        if !is_type(&stat, FileType::RegularFile)
            || stat.st_size as u64 != self.configuration.len() as u64
        {
            return Ok(false);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&*directory.handle()?, name, flags, Mode::empty());
        let mut bytes = Vec::new();
        File::from(opened.map_err(std::io::Error::from).context(|| "reading")?)
            .take(limits::RECORD_MAX_BYTES as u64)
            .read_to_end(&mut bytes)
            .context(|| "reading")?;
        Ok(self.is_ours(&bytes))
    }

    /// Removes `name` from `directory`, with everything below. `problem` is told what stays and
    /// why; the walk goes on with the rest.
    pub fn remove(
        &self,
        directory: &Arc<Directory>,
        name: &[u8],
        problem: &mut dyn FnMut(&Directory, &[u8], Error),
    ) -> Result<Deleted> {
        let mut deleted = Deleted::default();
        let Some(stat) = directory.stat(name)? else {
            return Ok(deleted);
        };
        if !is_type(&stat, FileType::Directory) {
            directory.unlink(name)?;
            deleted.items += 1;
            return Ok(deleted);
        }
        let mut steps = Vec::new();
        match self.enter(directory, name, &stat) {
            Ok(step) => steps.push(step),
            Err(error) => problem(directory, name, error),
        }
        loop {
            let depth = steps.len();
            let Some(step) = steps.last_mut() else {
                return Ok(deleted);
            };
            let Some(name) = step.names.pop() else {
                let stays = step.stays;
                let name = std::mem::take(&mut step.name);
                let above = steps.len().checked_sub(2).and_then(|at| steps.get(at));
                let above = above.map_or(directory, |above| &above.directory);
                let gone = match stays {
                    true => false,
                    false => match above.remove_directory(&name) {
                        Ok(()) => true,
                        Err(error) => {
                            problem(above, &name, error);
                            false
                        }
                    },
                };
                deleted.items += u64::from(gone);
                steps.pop();
                if let Some(above) = steps.last_mut() {
                    above.stays |= !gone;
                }
                continue;
            };
            match self.step(step, &name, &mut deleted) {
                Ok(Some(deeper)) if depth < limits::DEPTH_MAX => steps.push(deeper),
                Ok(Some(_)) => {
                    let error = Error::new(ErrorKind::LimitExceeded, "it is nested too deep");
                    step.stays = true;
                    problem(&step.directory, &name, error);
                }
                Ok(None) => {}
                Err(error) => {
                    step.stays = true;
                    problem(&step.directory, &name, error);
                }
            }
        }
    }

    fn step(&self, step: &mut Step, name: &[u8], deleted: &mut Deleted) -> Result<Option<Step>> {
        match step.directory.stat(name)? {
            Some(stat) if self.spared == Some((stat.st_dev, stat.st_ino)) => {
                step.stays = true;
                Ok(None)
            }
            Some(stat) if is_type(&stat, FileType::Directory) => {
                self.enter(&step.directory, name, &stat).map(Some)
            }
            _ => {
                step.directory.unlink(name)?;
                deleted.items += 1;
                Ok(None)
            }
        }
    }

    fn enter(&self, directory: &Arc<Directory>, name: &[u8], stat: &Stat) -> Result<Step> {
        if stat.st_dev != directory.identity().0 {
            return Err(Error::invalid("not deleted: another file system is mounted there"));
        }
        let entered = directory.enter(name)?;
        if self.is_store(&entered)? {
            return Err(Error::invalid(
                "not deleted: this is the store that is being restored from",
            ));
        }
        Ok(Step { names: entered.names()?, directory: entered, name: name.to_vec(), stays: false })
    }
}
