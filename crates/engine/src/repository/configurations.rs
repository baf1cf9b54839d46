//! The two copies of a store's configuration: which of them counts.
//!
//! A copy counts if this build knows all that it says. A flipped bit in a name makes another name,
//! which looks like the choice of a newer build; so a store is newer only if its copies say so with
//! one voice. Which of two copies is authentic is found out later, where there is a key.

use super::{AES_256_GCM, NO_ENCRYPTION, deciding};
use onefold_chunking::ChunkerParameters;
use onefold_crypto::HashKind;
use onefold_format::codec::Compression;
use onefold_format::configuration::{CONFIGURATION_MAX_BYTES, ChunkerSettings, Configuration};
use onefold_format::delta::DeltaChoice;
use onefold_format::layout;
use onefold_store::{Asked, Key, Store, foresee};
use onefold_types::{Error, ErrorKind, Result, StoreId};

/// The copies of the configuration that count, the first one first; at least one.
pub(super) fn read(store: &dyn Store) -> Result<Vec<Configuration>> {
    let keys = [layout::CONFIGURATION, layout::CONFIGURATION_COPY].map(Key::new);
    let _both = foresee(store, keys.into_iter().flatten().map(Asked::Object).collect());
    let mut stored = Vec::new();
    let mut read = |name: &str| {
        let (size, bytes) = store.get_tail(&Key::new(name)?, CONFIGURATION_MAX_BYTES)?;
        if size > bytes.len() as u64 {
            return Err(Error::damaged(format!("'{name}' is far too long")));
        }
        let read = Configuration::decode(&bytes).and_then(understood);
        stored.push(bytes);
        read
    };
    let first = read(layout::CONFIGURATION);
    let second = read(layout::CONFIGURATION_COPY);
    let is_newer = |error: &Error| error.kind() == ErrorKind::NewerFormat;
    match (first, second) {
        (Ok(first), second) => Ok([Some(first), second.ok()].into_iter().flatten().collect()),
        (Err(first), Ok(second)) if first.is_lost() || is_newer(&first) => Ok(vec![second]),
        (Err(first), Err(_)) if first.kind() == ErrorKind::NotFound => Err(Error::new(
            ErrorKind::NoStore,
            format!("there is no store at {}; make one with 'onefold init'", store.describe()),
        )),
        (Err(first), Err(_)) if is_newer(&first) && differ(&stored) => Err(first
            .with_kind(ErrorKind::Damaged)
            .context("'config' and 'config.copy' differ, and neither can be used")
            .context(store.describe())),
        (Err(first), _) => Err(first.context(store.describe())),
    }
}

fn differ(stored: &[Vec<u8>]) -> bool {
    stored.iter().zip(stored.iter().skip(1)).any(|(one, other)| one != other)
}

/// A configuration of which this build knows every choice. What no build writes is damage.
fn understood(configuration: Configuration) -> Result<Configuration> {
    match refuse_unknown(&configuration) {
        Ok(()) => Ok(configuration),
        Err(error) if error.kind() == ErrorKind::NewerFormat => Err(error),
        Err(error) => Err(error.with_kind(ErrorKind::Damaged)),
    }
}

fn refuse_unknown(configuration: &Configuration) -> Result<()> {
    let encryption = &configuration.encryption;
    if encryption != AES_256_GCM && encryption != NO_ENCRYPTION {
        return Err(Error::new(
            ErrorKind::NewerFormat,
            format!("the store is encrypted with {encryption}; use a newer onefold"),
        ));
    }
    let _: StoreId = configuration.store_id.parse()?;
    deciding::refuse_unknown(configuration)?;
    choices_of(configuration).map(drop)
}

/// What names chunks, and how streams are cut. That the other choices are known is seen to as well.
pub(super) fn choices_of(configuration: &Configuration) -> Result<(HashKind, ChunkerParameters)> {
    let hash: HashKind = configuration.hash.parse().map_err(unknown_choice)?;
    let _: Compression = configuration.compression.parse().map_err(unknown_choice)?;
    delta_of(configuration).map_err(unknown_choice)?;
    Ok((hash, chunker_parameters(&configuration.chunker)?))
}

/// Whether new chunks are stored as differences.
pub(super) fn delta_of(configuration: &Configuration) -> Result<DeltaChoice> {
    match configuration.delta.as_str() {
        "" => Ok(DeltaChoice::default()),
        said => said.parse(),
    }
}

fn chunker_parameters(settings: &ChunkerSettings) -> Result<ChunkerParameters> {
    let parameters = ChunkerParameters {
        kind: settings.kind.parse().map_err(unknown_choice)?,
        size_min_bytes: settings.size_min_bytes,
        size_avg_bytes: settings.size_avg_bytes,
        size_max_bytes: settings.size_max_bytes,
        regression_depth: settings.regression_depth,
    };
    parameters.validate()?;
    Ok(parameters)
}

/// A store that was made with a choice that there is not in this version.
fn unknown_choice(error: Error) -> Error {
    error.with_kind(ErrorKind::NewerFormat).context("the store needs a newer onefold")
}
