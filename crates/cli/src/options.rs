//! Options of every command, and options that several commands share.

use crate::size::ByteSize;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use onefold_crypto::KdfCost;
use onefold_engine::ingest::source_tree;
use onefold_engine::tree::path;
use onefold_policy::selection::SnapshotFilter;
use onefold_policy::tag_list::TagList;
use onefold_types::{Error, Result, limits};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub struct GlobalOptions {
    /// The store: a directory, 's3://BUCKET/PREFIX?endpoint=URL', 'gs://BUCKET/PREFIX',
    /// 'az://CONTAINER/PREFIX?account=NAME' or 'sftp://USER@HOST/PATH'
    #[arg(short = 'r', long = "repo", value_name = "STORE", env = "ONEFOLD_REPOSITORY")]
    #[arg(global = true)]
    pub repository: Option<PathBuf>,
    /// Reach the SFTP server of a store by this command instead of 'ssh ... -s HOST sftp'
    #[arg(long, value_name = "COMMAND", global = true, env = "ONEFOLD_SFTP_COMMAND")]
    pub sftp_command: Option<String>,
    /// Read the password from this file
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "password_command")]
    pub password_file: Option<PathBuf>,
    /// Read the password from what this shell command prints
    #[arg(long, value_name = "COMMAND", global = true)]
    pub password_command: Option<String>,
    /// Open the store by this key file, which takes the place of a password
    #[arg(long, value_name = "FILE", global = true)]
    #[arg(conflicts_with_all = ["password_file", "password_command"])]
    pub key_file: Option<PathBuf>,
    /// Use this profile of the configuration file
    #[arg(long, value_name = "NAME", global = true, env = "ONEFOLD_PROFILE")]
    pub profile: Option<String>,
    /// Use this configuration file
    #[arg(long, value_name = "FILE", global = true, env = "ONEFOLD_CONFIG")]
    pub config: Option<PathBuf>,
    /// The most memory to use [default: 256MiB]
    #[arg(long, value_name = "SIZE", global = true, env = "ONEFOLD_MEMORY")]
    pub memory: Option<ByteSize>,
    /// Threads, at most 1024, and no more than the memory limit allows: 6 MiB for each but two
    /// [default: as many as processors]
    #[arg(long, value_name = "N", global = true, env = "ONEFOLD_THREADS")]
    pub threads: Option<NonZeroUsize>,
    /// The most that this machine keeps of stores that are elsewhere, all together; 0: nothing
    /// [default: 1GiB]
    #[arg(long, value_name = "SIZE", global = true, env = "ONEFOLD_CACHE_SIZE")]
    pub cache_size: Option<ByteSize>,
    /// Open the store for reading only
    #[arg(long, global = true)]
    pub read_only: bool,
    /// Print JSON lines
    #[arg(long, global = true)]
    pub json: bool,
    /// Print results and errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Tell what becomes of each item
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// No colours (as does the environment variable NO_COLOR)
    #[arg(long, global = true)]
    pub no_color: bool,
}

/// Options that select snapshots.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArguments {
    /// Only snapshots of this host (may be repeated)
    #[arg(long = "host", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub hosts: Vec<String>,
    /// Only snapshots with all these tags, separated by commas (repeated: any of the lists)
    #[arg(long = "tag", value_name = "TAG,..")]
    pub tags: Vec<TagList>,
    /// Only snapshots of this path (repeated: all of them)
    #[arg(long = "path", value_name = "PATH")]
    pub paths: Vec<String>,
}

impl FilterArguments {
    /// The filter these options describe.
    #[must_use]
    pub fn filter(&self) -> SnapshotFilter {
        SnapshotFilter {
            hosts: self.hosts.clone(),
            tags: self.tags.clone(),
            paths: self.paths.iter().map(|path| as_saved(path)).collect(),
        }
    }
}

/// A path as records have it: absolute, however it is written.
fn as_saved(given: &str) -> String {
    let whole = source_tree::absolute(Path::new(given)).unwrap_or_else(|_| given.into());
    path::display(whole.as_os_str().as_bytes())
}

/// What trying a password costs whoever guesses.
#[derive(Args, Clone, Copy, Debug)]
pub struct KdfArguments {
    /// Memory that trying the password takes
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    kdf_memory: ByteSize,
    /// Passes over that memory
    #[arg(long, value_name = "N", default_value_t = KdfCost::default().passes)]
    kdf_passes: u32,
}

impl KdfArguments {
    /// The cost of a new key slot, which commands with this memory limit can open.
    pub fn cost(&self, limit_bytes: usize) -> Result<KdfCost> {
        let memory_kib = self.kdf_memory.in_memory()? / limits::KIB;
        let allowed_kib = (limit_bytes / limits::KIB).max(KdfCost::default().memory_kib as usize);
        if memory_kib > allowed_kib {
            return Err(Error::invalid(format!(
                "a key derivation that takes {} MiB could not be opened within the memory limit of \
                 {} MiB; raise the limit for all (--memory, ONEFOLD_MEMORY) or ask for less",
                memory_kib.div_ceil(1024),
                allowed_kib / 1024
            )));
        }
        KdfCost::new(u32::try_from(memory_kib).unwrap_or(u32::MAX), self.kdf_passes)
    }
}

/// What the record of a new snapshot says.
#[derive(Args, Clone, Debug, Default)]
pub struct RecordArguments {
    /// Tags for the new snapshot, separated by commas (may be repeated)
    #[arg(long = "tag", value_name = "TAG,..", value_delimiter = ',')]
    pub tags: Vec<String>,
    /// The host of the new snapshot
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub host: Option<String>,
    /// A note for the new snapshot
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub description: String,
    /// The time of the new snapshot, such as '2026-01-31 18:30:00'
    #[arg(long, value_name = "TIME", value_parser = crate::time::parse)]
    pub time: Option<i64>,
}
