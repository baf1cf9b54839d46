//! Directories: made, opened for what is restored into them, and left alone.

use super::Overwrite;
use super::target::Directory;
use super::walk::Restorer;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{Mode, Stat};
use std::sync::Arc;

impl Restorer<'_> {
    pub(super) fn new_directory(
        &self,
        parent: &Arc<Directory>,
        name: &[u8],
    ) -> Result<Arc<Directory>> {
        if self.options.dry_run {
            let item = parent.display_of(name);
            self.job.observer.item(&item, "would be made");
            return Ok(Directory::imagined(Some(parent), name));
        }
        parent.make(name)
    }

    /// Gives an ordinary user the right to change a directory of his; its mode is set later.
    pub(super) fn let_in(&self, directory: &Directory, stat: &Stat) -> Result<()> {
        let mode = Mode::from_raw_mode(stat.st_mode);
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if self.options.dry_run || self.shared.applier.is_privileged() || !ours {
            return Ok(());
        }
        if mode.contains(Mode::RWXU)
            || matches!(self.options.overwrite, Overwrite::Never | Overwrite::IfNewer)
        {
            return Ok(());
        }
        rustix::fs::fchmod(&*directory.handle()?, mode.union(Mode::RWXU))
            .map_err(|errno| Error::io("setting the mode", errno.into()))
    }

    /// Tells of an item in the place of a directory that the overwrite rule leaves alone: of what
    /// is below that directory, so many items if all is selected, nothing can be restored.
    pub(super) fn leave_alone(&mut self, item: &str, below: Option<u64>) {
        // Of what is selected below, this is about the first item.
        self.report.files_skipped += if below.is_none() { 2 } else { 1 };
        let below = match below {
            Some(0) => return,
            Some(1) => "1 item below it is".to_owned(),
            Some(items) => format!("{items} items below it are"),
            None => "what is selected below it is".to_owned(),
        };
        let what = format!(
            "what is there is no directory and is left alone, so {below} not restored; move it \
             away, restore to another target, or overwrite it with --overwrite always"
        );
        self.problem(item, &Error::new(ErrorKind::AlreadyExists, what));
    }
}
