//! `init`: makes a new store.

use crate::context::Context;
use crate::exit::Outcome;
use crate::known_stores::KnownPath;
use crate::making::Place;
use crate::opening::OpenedStore;
use crate::options::KdfArguments;
use crate::size::{ByteSize, human};
use crate::store_path;
use clap::Args;
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_crypto::{HashKind, Suite};
use onefold_engine::memory::MemoryPlan;
use onefold_engine::repository::Preset;
use onefold_engine::{Environment, InitOptions, Repository};
use onefold_format::codec::Compression;
use onefold_format::delta::DeltaChoice;
use onefold_remote::Location;
use onefold_types::{Error, Result};
use serde_json::json;

const AFTER_HELP: &str = "\
The password cannot be recovered: without it an encrypted store is lost. What is chosen here
holds for the life of the store, but for passwords, and for compression and differences, which each
backup may choose.

PRESETS
  fast     chunks of 16KiB, zstd,1, no differences: least processor time
  default  chunks of 32KiB, zstd,2, differences
  small    chunks of 32KiB, zstd,9, differences: least room

EXAMPLES
  onefold init -r /mnt/backup
  onefold init -r /mnt/archive --password-file ~/.archive-password --chunk-size 64KiB";

/// Arguments of `init`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct InitArguments {
    /// What backups are to be good at, where no other option says how: fast, default or small
    #[arg(long, value_name = "NAME", default_value_t)]
    preset: Preset,
    /// How objects are sealed: aes-256-gcm or none
    #[arg(long, value_name = "SUITE", default_value = "aes-256-gcm", value_parser = parse_suite)]
    encryption: Suite,
    /// What names chunks: blake3, sha256 or sha1
    #[arg(long, value_name = "HASH", default_value = "blake3")]
    hash: HashKind,
    /// How streams are cut: mincdc, fastcdc, rabin, regression or fixed
    #[arg(long, value_name = "KIND", default_value = "mincdc")]
    chunker: ChunkerKind,
    /// The average chunk [default: 32KiB]
    #[arg(long, value_name = "SIZE")]
    chunk_size: Option<ByteSize>,
    /// The smallest chunk [default: what suits the chunker]
    #[arg(long, value_name = "SIZE")]
    chunk_min: Option<ByteSize>,
    /// The largest chunk [default: what suits the chunker]
    #[arg(long, value_name = "SIZE")]
    chunk_max: Option<ByteSize>,
    /// Do not cut archives at their members
    #[arg(long)]
    no_tar_awareness: bool,
    /// none, lz4, zstd or zstd,LEVEL [default: zstd,2]
    #[arg(long, value_name = "METHOD")]
    compression: Option<Compression>,
    /// Whether new chunks that are like stored ones are stored as differences: on, off, or depth=N
    /// with up to N differences behind one another [default: on]
    #[arg(long, value_name = "HOW")]
    delta: Option<DeltaChoice>,
    /// Stored bytes after which a container is closed [default: 4MiB]; sooner by commands whose
    /// memory limit is too small for that: above 4MiB, 16 times as much is needed above 48MiB
    #[arg(long, value_name = "SIZE")]
    container_size: Option<ByteSize>,
    #[command(flatten)]
    kdf: KdfArguments,
    /// Whom the first password belongs to
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    key_label: String,
}

fn parse_suite(text: &str) -> Result<Suite> {
    match text {
        "none" => Ok(Suite::None),
        "aes-256-gcm" => Ok(Suite::Aes256Gcm),
        _ => Err(Error::invalid(format!("'{text}' is not one of aes-256-gcm, none"))),
    }
}

impl InitArguments {
    fn options(&self, context: &Context) -> Result<InitOptions> {
        let mut options = InitOptions::of(self.preset)?;
        let size_avg_bytes = match self.chunk_size {
            Some(size) => size.in_memory()?,
            None => options.chunker.size_avg_bytes,
        };
        let mut chunker = ChunkerParameters::with_average(self.chunker, size_avg_bytes)?;
        if let Some(size) = self.chunk_min {
            chunker.size_min_bytes = size.in_memory()?;
        }
        if let Some(size) = self.chunk_max {
            chunker.size_max_bytes = size.in_memory()?;
        }
        chunker.validate()?;
        options.kdf_cost = self.kdf.cost(context.memory.limit_bytes)?;
        options.suite = self.encryption;
        options.hash = self.hash;
        options.chunker = chunker;
        options.tar_aware = !self.no_tar_awareness;
        if let Some(compression) = self.compression.or(context.profile.compression) {
            options.compression = compression;
        }
        if let Some(delta) = self.delta {
            options.delta = delta;
        }
        if let Some(size) = self.container_size {
            options.container_size_bytes = size.in_memory()?;
        }
        options.key_label = match self.key_label.as_str() {
            "" => format!("{}@{}", crate::context::user_name(), crate::context::host_name()),
            label => label.to_owned(),
        };
        Ok(options)
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &InitArguments) -> Result<Outcome> {
    let output = &context.output;
    let location = context.location()?;
    let options = arguments.options(context)?;
    if options.hash == HashKind::Sha1 {
        output.warning(
            "collisions of SHA-1 can be made on purpose; use it to reproduce papers, not for data \
             that others can add to",
        );
    }
    let place = location.directory().map(Place::of).transpose()?;
    if location.directory().is_some_and(store_path::is_volatile) {
        output.warning(&format!(
            "'{location}' is on a file system in memory: all snapshots are lost when it is \
             unmounted or the machine restarts"
        ));
    }
    // Asked for before anything is made, so that a wrong answer leaves nothing behind.
    let password = match options.suite {
        Suite::None => None,
        Suite::Aes256Gcm => Some(context.initial_password()?),
    };
    let password = password.as_ref().map(|password| password.as_slice());
    let make = || {
        let store = OpenedStore::create(&location, &context.means())?;
        let (environment, memory) = (Environment::system(), context.memory);
        let made = Repository::create(store.port(), &options, password, environment, memory)?;
        Ok((store, made))
    };
    let made = make().inspect_err(|_: &Error| place.iter().for_each(Place::clear));
    let (store, repository) = made?;
    store.prepare(options.container_size_bytes);
    KnownPath::load(&location).meet(&repository, true, output);
    report(context, &location, &repository)
}

fn report(context: &Context, location: &Location, repository: &Repository) -> Result<Outcome> {
    let output = &context.output;
    output.set_done("the store is made");
    let configuration = repository.configuration();
    output.note(&format!("made store {} in '{location}'", repository.store_id().short()))?;
    output.note(&match configuration.encryption.as_str() {
        "none" => "it is not encrypted: whoever can read it there can read the data".into(),
        suite => format!("it is encrypted ({suite}): without the password it is lost, so keep it"),
    })?;
    let wanted = configuration.container_size_bytes;
    if repository.container_target_bytes() < wanted {
        let bytes = |bytes: usize| human(bytes as u64);
        output.note(&format!(
            "containers are to have {}: commands whose --memory is below {} make smaller ones",
            bytes(wanted),
            bytes(MemoryPlan::limit_for_containers(wanted))
        ))?;
    }
    output.message(
        "initialized",
        json!({
            "store_id": repository.store_id().to_string(),
            "path": location.to_string(),
            "encryption": configuration.encryption,
            "hash": configuration.hash,
            "chunker": configuration.chunker.kind,
            "chunk_size_bytes": configuration.chunker.size_avg_bytes,
            "compression": configuration.compression,
            "delta": repository.delta()?.to_string(),
        }),
    )?;
    Ok(Outcome::Complete)
}
