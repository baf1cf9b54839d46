//! Whether what is there under a name has that name.
//!
//! A target that folds names (NTFS, exFAT, directories with casefold) finds `README` under the name
//! `readme`. Nothing is written under a name that the directory does not list letter for letter:
//! it is another item of the snapshot, or one that nobody asked to replace. Names are listed
//! once for each directory, when the first item that is there is met, and kept as hashes; one
//! that is not among them is looked for again, since it may have been made meanwhile.

use super::identity::Spellings;
use super::target::Directory;
use super::walk::Restorer;
use crate::tree::path;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::Stat;

impl Restorer<'_> {
    /// What is there under a name, spelled so.
    ///
    /// Errors: `AlreadyExists` if it is spelled otherwise.
    pub(super) fn existing(&self, directory: &Directory, name: &[u8]) -> Result<Option<Stat>> {
        if directory.fresh {
            return Ok(None);
        }
        let Some(stat) = directory.stat(name)? else {
            return Ok(None);
        };
        match self.is_spelled_so(directory, name, &stat) {
            // A directory that cannot be listed can be written into all the same.
            Err(error) if error.kind() == ErrorKind::NotPermitted => Ok(Some(stat)),
            result => result.map(|()| Some(stat)),
        }
    }

    fn is_spelled_so(&self, directory: &Directory, name: &[u8], stat: &Stat) -> Result<()> {
        let spellings = match directory.spellings.get() {
            Some(spellings) => spellings,
            None => {
                let names = directory.names()?;
                if !self.options.dry_run {
                    let names = names.iter().map(Vec::as_slice).filter(|other| *other != name);
                    self.shared.names.remove_left_over(directory, names);
                }
                directory.spellings.get_or_init(|| Spellings::new(&names))
            }
        };
        if spellings.holds(name) {
            return Ok(());
        }
        let (mut is_listed, mut other) = (false, None);
        directory.list(&mut |listed, inode| {
            is_listed |= listed == name;
            if inode == stat.st_ino {
                other = Some(listed.to_vec());
            }
        })?;
        if is_listed {
            return Ok(());
        }
        let other = other.map_or("another item".to_owned(), |other| path::display(&other));
        Err(Error::new(
            ErrorKind::AlreadyExists,
            format!(
                "the target does not tell this name from that of {other}, which is left as it is; \
                 restore into a directory that tells them apart, or with --include alone into an \
                 empty one"
            ),
        ))
    }
}
