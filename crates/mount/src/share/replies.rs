//! Answers in the kernel's form.

use super::Answer;
use super::open_files::{Bytes, Handle, OpenInode};
use super::served::Served;
use fuser::{
    BackingId, Errno, FileHandle, FopenFlags, ReplyEmpty, ReplyLseek, ReplyOpen, ReplyXattr,
};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

/// How long the kernel need not ask again.
pub(super) const VALID: Duration = Duration::from_secs(1);

pub(super) fn empty(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

pub(super) fn bytes(answer: Answer<Vec<u8>>, room: u32, reply: ReplyXattr) {
    match answer {
        Ok(bytes) if room == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > room as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(error),
    }
}

pub(super) fn offset(answer: Answer<i64>, reply: ReplyLseek) {
    match answer {
        Ok(found) => reply.offset(found),
        Err(error) => reply.error(error),
    }
}

/// What the kernel reads and writes itself; `None` if it cannot, or if the file is a stub.
pub(super) fn backing(
    passes_through: bool,
    inode: &OpenInode,
    open: impl FnOnce(&File) -> std::io::Result<BackingId>,
) -> Option<&BackingId> {
    let Bytes::Plain(file) = &inode.bytes else { return None };
    if !passes_through {
        return None;
    }
    inode.backing.get_or_init(|| open(file).ok()).as_ref()
}

/// Gives a handle of a file that was entered.
pub(super) fn opened(
    served: &Served,
    passes_through: bool,
    (entered, flags): (Answer<Arc<OpenInode>>, i32),
    reply: ReplyOpen,
) {
    let handle = entered.and_then(|inode| handle_of(served, passes_through, inode, flags));
    let handle = match handle {
        Ok(handle) => handle,
        Err(error) => return reply.error(error),
    };
    let inode = Arc::clone(&handle.inode);
    let handle = FileHandle(served.open.handle_for(handle));
    if let Some(backing) = backing(passes_through, &inode, |file| reply.open_backing(file)) {
        return reply.opened_passthrough(handle, FopenFlags::empty(), backing);
    }
    served.pages.settle(&inode);
    reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE);
}

/// A handle of a file that was entered, which is left if there can be none.
pub(super) fn handle_of(
    served: &Served,
    passes_through: bool,
    inode: Arc<OpenInode>,
    flags: i32,
) -> Answer<Handle> {
    let number = inode.number;
    served.handle(inode, flags, passes_through).inspect_err(|_| served.leave(number))
}
