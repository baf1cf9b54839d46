//! What is served: the share, the store's trees, what the kernel knows and what is open.

use super::Answer;
use super::below::Status;
use super::nodes::Nodes;
use super::open_files::OpenFiles;
use super::pages::Pages;
use super::times::Settled;
use crate::problems::Problems;
use fuser::{Errno, FileAttr, INodeNo};
use onefold_engine::primary::handover::Handover;
use onefold_engine::primary::reserve::Reserve;
use onefold_engine::primary::share::{OPEN, open_directory};
use onefold_engine::primary::{Share, emptying, second_copies};
use onefold_engine::stub::JOB_WAIT;
use onefold_engine::tree::TreeReader;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::AtFlags;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What the system says to a request that asks for too much, or for what there is not.
const REQUESTED: [Errno; 5] =
    [Errno::EFBIG, Errno::EDQUOT, Errno::EINVAL, Errno::EOPNOTSUPP, Errno::EPERM];

/// What answers the kernel's requests.
pub struct Served {
    pub(super) share: Share,
    pub(super) tree: Arc<TreeReader>,
    pub(super) nodes: Nodes,
    pub(super) open: OpenFiles,
    pub(super) problems: Problems,
    /// What the kernel keeps of stubs.
    pub(super) pages: Arc<Pages>,
    /// Files whose time is what they say.
    pub(super) settled: Settled,
    /// Gives jobs the directory below.
    pub(super) handover: Handover,
    /// Room for what comes back when the disk is full.
    pub(super) reserve: Arc<Reserve>,
    /// Whether new files may be given to whoever asked for them.
    pub(super) may_give: bool,
    /// How long a program waits for a job that is at its file.
    pub(super) job_wait: Duration,
}

impl Served {
    /// Takes away what was deleted while a mount was killed.
    pub fn new(share: Share, tree: Arc<TreeReader>, problems: Problems) -> Result<Self> {
        let top = open_directory(share.directory(), Path::new("."))?;
        let nodes = Nodes::new(top).map_err(|_| Error::invalid("the share cannot be looked at"))?;
        clear_unnamed(&share)?;
        let repository = tree.chunks().repository();
        emptying::go_on(repository, &share, &mut |path, error| {
            let _ = problems.note(format!("/{}: {error}", path.display()));
        })?;
        second_copies::install(repository)?;
        let randomness = &repository.environment().randomness;
        let handover = Handover::begin(&**randomness, share.uncovered()?)?;
        // What a program asks for is masked by what it asked to be masked, and by nothing else.
        rustix::process::umask(rustix::fs::Mode::empty());
        let may_give = rustix::process::geteuid().is_root();
        let open = OpenFiles::default();
        let reserve = Arc::new(Reserve::of(share.control()?));
        // Without it the share is what it is, but on a full disk.
        if let Err(error) = reserve.fill() {
            problems.note(error.to_string());
        }
        let (pages, settled) = (Arc::default(), Settled::default());
        let job_wait = JOB_WAIT;
        Ok(Self {
            share,
            tree,
            nodes,
            open,
            problems,
            pages,
            settled,
            handover,
            reserve,
            may_give,
            job_wait,
        })
    }

    /// Lets programs wait so long for a job that is at their file.
    #[must_use]
    pub fn with_job_wait(self, job_wait: Duration) -> Self {
        Self { job_wait, ..self }
    }

    /// What a program hears of an error, which is told in full to whoever has mounted the share.
    pub(super) fn failed(&self, number: u64, error: &Error) -> Errno {
        self.told_of(number, error).0
    }

    /// The same, and whether it was not told before.
    pub(super) fn told_of(&self, number: u64, error: &Error) -> (Errno, bool) {
        if let Some(code) =
            error.os_code().filter(|code| REQUESTED.iter().any(|one| one.code() == *code))
        {
            return (Errno::from_i32(code), false);
        }
        let code = match error.kind() {
            ErrorKind::NoSpace => return (Errno::ENOSPC, false),
            ErrorKind::NotPermitted => return (Errno::EACCES, false),
            ErrorKind::ReadOnly => return (Errno::EROFS, false),
            ErrorKind::NotFound => return (Errno::ENOENT, false),
            ErrorKind::Unavailable => Errno::EAGAIN,
            _ => Errno::EIO,
        };
        (code, self.problems.note(format!("{}: {error}", self.nodes.path_of(number))))
    }

    /// An item by its number; what is open is found however it was named.
    pub(super) fn item(&self, number: u64) -> Answer<OwnedFd> {
        match self.open.inode(number) {
            Some(open) => {
                open.with_file(|file| file.as_fd().try_clone_to_owned()).map_err(Errno::from)
            }
            None => self.nodes.item(number),
        }
    }

    /// What the kernel is told of an item.
    pub(super) fn told(&self, number: u64, status: &Status) -> FileAttr {
        FileAttr { ino: INodeNo(number), ..status.attributes }
    }

    pub(super) fn attributes(&self, number: u64) -> Answer<FileAttr> {
        let item = self.item(number)?;
        let mut told = self.told(number, &self.timed_item(number, item.as_fd())?);
        if self.open.inode(number).is_some_and(|open| open.is_unnamed.load(Ordering::Relaxed)) {
            // It has a name below for as long as it is open.
            told.nlink = 0;
        }
        Ok(told)
    }
}

fn clear_unnamed(share: &Share) -> Result<()> {
    let hidden = open_directory(share.control()?, Path::new(OPEN))?;
    let failed = |errno: rustix::io::Errno| Error::io("clearing what was deleted", errno.into());
    for entry in rustix::fs::Dir::read_from(&hidden).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            rustix::fs::unlinkat(&hidden, entry.file_name(), AtFlags::empty()).map_err(failed)?;
        }
    }
    Ok(())
}
