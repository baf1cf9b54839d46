//! What `backup` tells of sources that give less than they seem to: links, devices, and directories
//! with nothing in them.

use crate::context::Context;
use crate::size::{counted, human};
use onefold_engine::ingest::{BackupReport, Source, source_tree};
use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Said of a backup that found nothing.
pub const GAVE_NOTHING: &str = "nothing was found in what was to be saved, so the exit code is 3; \
                                is something not mounted? --allow-empty says that this is meant";

/// The sources that are neither files nor directories, each with what it is.
#[derive(Default)]
pub struct Named {
    bare: Vec<(String, &'static str)>,
    is_stream: bool,
}

impl Named {
    /// Those of a backup.
    pub fn of(source: &Source) -> Self {
        let Source::Paths { paths, selection } = source else {
            return Self { bare: Vec::new(), is_stream: true };
        };
        let is_read = |path: &Path| {
            let kind = path.metadata().ok().and_then(|found| what(found.file_type()));
            selection.read_special && kind.is_some_and(|kind| kind != SOCKET)
        };
        let is_bare = |path: &&PathBuf| !source_tree::leads_on(path) && !is_read(path);
        let found = paths.iter().filter(is_bare).filter_map(|path| {
            let kind = what(path.symlink_metadata().ok()?.file_type())?;
            Some((path.display().to_string(), kind))
        });
        Self { bare: found.collect(), is_stream: false }
    }

    /// Says what is saved of them.
    pub fn warn(&self, context: &Context) {
        for (path, kind) in &self.bare {
            let way = match *kind {
                LINK => format!("give '{path}/' to save the directory that it leads to"),
                SOCKET => "a socket holds nothing".to_owned(),
                _ => "--read-special saves what can be read from it".to_owned(),
            };
            context.output.warning(&format!(
                "'{path}' is a {kind}, and is saved as that, without what is behind it; {way}"
            ));
        }
    }

    /// Whether nothing but the sources themselves was found.
    pub fn gave_nothing(&self, report: &BackupReport) -> bool {
        let found = &report.summary;
        match self.is_stream {
            true => found.bytes == 0,
            // Of a source with a mark the mark is saved.
            false => {
                found.files <= report.left_out.marked_sources.len() as u64
                    && found.others <= self.bare.len() as u64
            }
        }
    }
}

const LINK: &str = "symbolic link";
const SOCKET: &str = "socket";

fn what(file_type: FileType) -> Option<&'static str> {
    if file_type.is_symlink() {
        Some(LINK)
    } else if file_type.is_block_device() {
        Some("block device")
    } else if file_type.is_char_device() {
        Some("character device")
    } else if file_type.is_fifo() {
        Some("pipe")
    } else if file_type.is_socket() {
        Some(SOCKET)
    } else {
        None
    }
}

/// Says which directories have nothing in them any more, and which sources bear a mark.
pub fn warn_of_emptied(context: &Context, report: &BackupReport) {
    for path in &report.left_out.marked_sources {
        context.output.warning(&format!(
            "the source '{path}' bears a mark itself, so all that is in it was left out"
        ));
    }
    for emptied in &report.left_out.emptied {
        context.output.warning(&format!(
            "'{}' is empty, and held {} with {} in the snapshot before: is something not mounted?",
            emptied.path,
            counted(emptied.entries, "item"),
            human(emptied.bytes)
        ));
    }
}
