//! A store with its configuration and keys: what every operation starts from.
//!
//! Opening reads the configuration, asks for a password or a key file (`credential`) only if the
//! store is encrypted, and unwraps the ring of keys with the first slot that opens (`slots`,
//! `generations`; `rotation` makes a new ring). Configuration and key slots are stored
//! twice; a damaged first copy falls back to the second (R30), and so does a first one that reads
//! well and is not authentic.
//!
//! # Trust
//! The configuration can be read by anybody and, by whoever can write to the store, be changed. The
//! key proves it, but a configuration that says "none" asks for no key. So a store is taken to be
//! without encryption only if nothing speaks against it: neither the caller ([`Expectation`]), nor
//! anything in `keys`, nor a second copy that says otherwise (R73).

mod configurations;
mod credential;
mod deciding;
mod generations;
mod likeness;
mod opening;
mod options;
mod rotation;
mod shared;
mod slots;
pub mod uncopied;
mod variants;

use crate::common_index::CommonIndex;
use crate::environment::Environment;
use crate::memory::{MemoryPlan, Purse};
use crate::remembered::Remembered;
pub use credential::{Credential, Password};
use generations::KeyStatus;
use onefold_chunking::Chunker;
use onefold_crypto::{
    Fingerprinter, KdfCost, KeyRing, KeySlot, MasterKey, Secret, Suite, Vault, contexts,
};
use onefold_format::codec::Compression;
use onefold_format::configuration::{ChunkerSettings, Configuration};
use onefold_format::delta::DeltaChoice;
use onefold_format::layout;
use onefold_store::{Asked, Key, SharedForesight, Store, foresee, foresee_shared};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, KeyId, Result, StoreId, limits};
pub use options::{InitOptions, Preset};
use shared::Shared;
use std::any::Any;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uncopied::Uncopied;

/// What was foreseen before a password was asked for so long is not believed any more.
pub const ASKING_MAX: Duration = Duration::from_secs(2);
const NO_ENCRYPTION: &str = "none";
const AES_256_GCM: &str = "aes-256-gcm";

/// Chunks of such an average are not put together in frames.
const LARGE_CHUNKS_BYTES: usize = 64 * limits::KIB;
/// Fewer of those of such an average are put together than of smaller ones.
const MEDIUM_CHUNKS_BYTES: usize = 32 * limits::KIB;

/// What a caller knows about a store before it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expectation<'a> {
    /// Nothing.
    #[default]
    Nothing,
    /// That it is encrypted.
    Encrypted {
        /// How that is known: a clause, for the message.
        because: &'a str,
        /// The ids of stores that are known not to be.
        but_for: &'a [StoreId],
    },
}

/// A key slot and its name.
#[derive(Debug)]
pub struct NamedSlot {
    /// The slot's name.
    pub id: KeyId,
    /// The slot, or why it cannot be read.
    pub slot: Result<KeySlot>,
    /// Whether somebody is removing it, or was stopped at that.
    pub being_removed: bool,
    /// Whether this slot opened the store.
    pub current: bool,
    /// Whether a rotation has left it behind, or stored it and was stopped: it holds other keys
    /// than the newest ones.
    pub has_other_keys: bool,
}

/// An open store.
#[derive(Clone)]
pub struct Repository {
    store: Arc<dyn Store>,
    store_id: StoreId,
    configuration: Configuration,
    ring: Option<KeyRing>,
    current_key: Option<KeyId>,
    vault: Arc<Vault>,
    fingerprinter: Arc<Fingerprinter>,
    chunker: Arc<dyn Chunker>,
    environment: Environment,
    memory: MemoryPlan,
    purse: Arc<Purse>,
    shared: Arc<Shared>,
    uncopied: Arc<Uncopied>,
    frame_bytes: Option<usize>,
    common_index: Option<Arc<dyn CommonIndex>>,
    foreseen: Arc<Mutex<Option<SharedForesight>>>,
    remembered: Option<Arc<Remembered>>,
}

impl Repository {
    /// Makes a store where nothing is yet. `password` is needed unless the suite is none.
    pub fn create(
        store: Arc<dyn Store>,
        options: &InitOptions,
        password: Option<&[u8]>,
        environment: Environment,
        memory: MemoryPlan,
    ) -> Result<Self> {
        options.chunker.validate()?;
        let config = Key::new(layout::CONFIGURATION)?;
        if store.size(&config).is_ok() {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("there is a store at {} already", store.describe()),
            ));
        }
        let store_id = StoreId::random(&*environment.randomness);
        let ring = match options.suite {
            Suite::None => None,
            Suite::Aes256Gcm => Some(KeyRing::new(MasterKey::generate(&*environment.randomness))),
        };
        let master_key = ring.as_ref().map(KeyRing::master_key);
        let decisions = deciding::named(store.decided_by());
        let configuration =
            configuration_of(options, (store_id, decisions), &environment, master_key)?;
        store.open_as(store_id, true)?;
        let slot = ring.as_ref().map(|ring| {
            let password =
                password.ok_or_else(|| Error::invalid("an encrypted store needs a password"))?;
            new_slot(ring, password, store_id, options, &environment)
        });
        let slot = slot.transpose()?;
        let current_key = slot.map(|slot| slots::put(&*store, &slot, &environment)).transpose()?;
        let bytes = configuration.encode()?;
        let copy = Key::new(layout::CONFIGURATION_COPY)?;
        // The second of two attempts makes no store. It removes only its own objects: the first one
        // may be writing at this moment.
        let without_slot = |_: &Error| {
            current_key.into_iter().for_each(|id| slots::undo(&*store, id));
        };
        store.put_fresh(&copy, &bytes).inspect_err(without_slot)?;
        // The store exists once its configuration does, so this comes last.
        store.put_fresh(&config, &bytes).inspect_err(|error| {
            let _ = store.delete(&copy);
            without_slot(error);
        })?;
        Self::assemble(store, configuration, ring, current_key, environment, memory)
    }

    /// Opens a store of which nothing is known; `password` is asked for only if it is encrypted.
    ///
    /// Errors: as for [`Repository::open_expecting`].
    pub fn open(
        store: Arc<dyn Store>,
        password: impl FnOnce() -> Result<Password>,
        environment: Environment,
        memory: MemoryPlan,
    ) -> Result<Self> {
        let credential = || password().map(Credential::Password);
        Self::open_expecting(store, Expectation::Nothing, credential, environment, memory)
    }

    /// Opens a store; `credential` is asked for only if the store is encrypted.
    ///
    /// Errors: `NoStore`, `WrongPassword`, `NewerFormat`; `Damaged` if the configuration is not
    /// what the key proves; `Tampered` if it says that the store is not encrypted and something
    /// speaks against it.
    pub fn open_expecting(
        store: Arc<dyn Store>,
        expectation: Expectation<'_>,
        credential: impl FnOnce() -> Result<Credential>,
        environment: Environment,
        memory: MemoryPlan,
    ) -> Result<Self> {
        // The first thing that most commands read once the store is open. Names of checkpoints are
        // evidence of nothing, so they may be listed before the keys are known.
        let checkpoints =
            foresee_shared(&store, vec![Asked::Names(layout::CHECKPOINTS.to_owned())]);
        // Most stores have keys.
        let keys = foresee(&*store, vec![Asked::Names(layout::KEYS.to_owned())]);
        let mut copies = configurations::read(&*store)?;
        // Whichever copy says so: a store is not opened without a key that may have one.
        let encrypted = copies.iter().position(|copy| copy.encryption != NO_ENCRYPTION);
        let Some(encrypted) = encrypted else {
            let configuration = copies.swap_remove(0);
            deciding::open(&*store, &configuration)?;
            refuse_if_encrypted(&*store, configuration.store_id.parse()?, expectation)?;
            drop(keys);
            let repository = Self::assemble(store, configuration, None, None, environment, memory)?;
            return Ok(repository.about_to_read(checkpoints));
        };
        let store_id = copies[encrypted].store_id.parse()?;
        deciding::open(&*store, &copies[encrypted])?;
        let limit_bytes = memory.limit_bytes;
        let asked = Instant::now();
        let credential = credential()?;
        // Whoever was asked for it may have let time pass.
        let keys = Some(keys).filter(|_| asked.elapsed() < ASKING_MAX);
        let secret = credential.secret();
        let unlock = |id| slots::unlock(&*store, secret, id, limit_bytes, &environment);
        // Of two copies that do not agree about the store's name one has rotten.
        let others = copies.iter().filter_map(|copy| copy.store_id.parse().ok());
        let other = others.rev().find(|id: &StoreId| *id != store_id);
        let (ring, id) = match (unlock(store_id), other) {
            (Err(_), Some(other)) => unlock(other)?,
            (unlocked, _) => unlocked?,
        };
        drop(keys);
        let key = ring.master_key();
        let authentic = copies.into_iter().find(|copy| is_authentic(copy, key));
        let configuration = authentic.ok_or_else(|| {
            Error::damaged(
                "the configuration was changed by somebody without the key; restore the file \
                 'config' from a copy of the store",
            )
        })?;
        // The one that was read before may have been another copy.
        deciding::expect(&*store, &configuration)?;
        let repository =
            Self::assemble(store, configuration, Some(ring), Some(id), environment, memory)?;
        Ok(repository.about_to_read(checkpoints))
    }

    fn assemble(
        store: Arc<dyn Store>,
        configuration: Configuration,
        ring: Option<KeyRing>,
        current_key: Option<KeyId>,
        environment: Environment,
        memory: MemoryPlan,
    ) -> Result<Self> {
        let (hash, parameters) = configurations::choices_of(&configuration)?;
        let master_key = ring.as_ref().map(KeyRing::master_key);
        let secret = master_key.map(|key| key.subkey(contexts::BOUNDARIES));
        let vault = match &ring {
            None => Vault::new(None),
            Some(ring) => {
                let (store, own) = (Arc::clone(&store), ring.newest().number);
                let have_changed = move || {
                    let newer = generations::newer(&*store, own, &|| slots::claimed(&*store))?;
                    Ok(newer.is_some())
                };
                Vault::of_ring(ring, Box::new(have_changed))
            }
        };
        Ok(Self {
            store,
            store_id: configuration.store_id.parse()?,
            vault: Arc::new(vault),
            fingerprinter: Arc::new(Fingerprinter::new(hash, master_key)),
            chunker: Arc::from(parameters.build(secret.as_deref())?),
            configuration,
            ring,
            current_key,
            environment,
            purse: Arc::new(Purse::new(&memory)),
            memory,
            shared: Arc::default(),
            uncopied: Arc::default(),
            frame_bytes: None,
            common_index: None,
            foreseen: Arc::default(),
            remembered: None,
        })
    }

    /// A store that the machine shares with others, whose objects may lie: this directory has the
    /// machine's own memory of it. A repository without one believes every object that opens.
    #[must_use]
    pub fn remembering_in(self, directory: Option<PathBuf>) -> Self {
        let (store, vault) = (self.store_id, Arc::clone(&self.vault));
        let randomness = Arc::clone(&self.environment.randomness);
        let remembered = Remembered::load(directory, store, vault, randomness);
        Self { remembered: Some(Arc::new(remembered)), ..self }
    }

    /// The machine's own memory of the store; `None` if it believes every object that opens.
    #[must_use]
    pub fn remembered(&self) -> Option<&Remembered> {
        self.remembered.as_deref()
    }

    /// Where everything is kept.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// A handle to the store for another thread.
    #[must_use]
    pub fn shared_store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// The store's name.
    #[must_use]
    pub fn store_id(&self) -> StoreId {
        self.store_id
    }

    /// What the store is made of.
    #[must_use]
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// What new frames are compressed with unless a run says otherwise.
    pub fn compression(&self) -> Result<Compression> {
        self.configuration.compression.parse()
    }

    /// Whether new chunks are stored as differences, unless a run says otherwise.
    pub fn delta(&self) -> Result<DeltaChoice> {
        configurations::delta_of(&self.configuration)
    }

    /// Seals and opens.
    #[must_use]
    pub fn vault(&self) -> &Arc<Vault> {
        &self.vault
    }

    /// Names chunks.
    #[must_use]
    pub fn fingerprinter(&self) -> &Arc<Fingerprinter> {
        &self.fingerprinter
    }

    /// Cuts streams.
    #[must_use]
    pub fn chunker(&self) -> &Arc<dyn Chunker> {
        &self.chunker
    }

    /// Chance and time.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The division of the memory limit.
    #[must_use]
    pub fn memory(&self) -> &MemoryPlan {
        &self.memory
    }

    /// What may still be taken of the memory limit.
    #[must_use]
    pub fn purse(&self) -> &Arc<Purse> {
        &self.purse
    }

    /// What is opened once for this store and process; `make` makes it.
    pub fn shared<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        self.shared.get(make)
    }

    /// Plain bytes after which a frame is closed. The larger chunks are, the better they compress
    /// alone, those of 64 KiB about as well as together; and whoever reads 4 KiB of one, or one
    /// that others are made of, pays for the whole frame.
    #[must_use]
    pub fn frame_target_bytes(&self) -> usize {
        if let Some(bytes) = self.frame_bytes {
            return bytes;
        }
        match self.configuration().chunker.size_avg_bytes {
            large @ LARGE_CHUNKS_BYTES.. => large.min(limits::FRAME_PLAIN_TARGET_BYTES),
            MEDIUM_CHUNKS_BYTES.. => limits::FRAME_PLAIN_TARGET_BYTES / 2,
            _ => limits::FRAME_PLAIN_TARGET_BYTES,
        }
    }

    /// Stored bytes after which this process finishes a container: as many as the store says, if
    /// the memory limit allows it.
    #[must_use]
    pub fn container_target_bytes(&self) -> usize {
        self.configuration.container_size_bytes.min(self.memory.container_bytes_max)
    }

    /// All key slots, those that cannot be read last.
    pub fn keys(&self) -> Result<Vec<NamedSlot>> {
        let store = &*self.store;
        let listed = slots::list(store)?;
        let (_, statuses) = slots::statuses(store, listed.slots.iter().copied())?;
        let named = |id: KeyId| NamedSlot {
            id,
            slot: slots::read(store, id),
            being_removed: listed.removals.contains_key(&id),
            current: Some(id) == self.current_key,
            has_other_keys: statuses.get(&id).is_some_and(|it| *it != KeyStatus::Current),
        };
        let mut all: Vec<NamedSlot> = listed.slots.iter().map(|id| named(*id)).collect();
        all.sort_by_key(|named| {
            let created_ns = named.slot.as_ref().map_or(i64::MAX, |slot| slot.created_ns);
            (created_ns, named.id)
        });
        Ok(all)
    }

    /// The names of all keys, those whose removal was stopped included.
    pub fn key_names(&self) -> Result<Vec<KeyId>> {
        let mut listed = slots::list(&*self.store)?;
        listed.slots.extend(listed.removals.keys());
        Ok(listed.slots.into_iter().collect())
    }

    /// Checks what was decided about generations of keys; `record`: whether missing copies may be
    /// put.
    pub(crate) fn check_generations(
        &self,
        record: bool,
        notes: &mut Vec<String>,
        problems: &mut Vec<String>,
    ) -> Result<()> {
        generations::check(&*self.store, record, notes, problems)
    }

    /// Adds a password, which costs that much to try, or a key file, which costs nothing.
    ///
    /// Errors: `KeysChanged` if the keys were rotated since the store was opened: nothing would
    /// open with the new slot.
    pub fn add_key<'a>(
        &self,
        secret: impl Into<Secret<'a>>,
        cost: KdfCost,
        label: &str,
    ) -> Result<KeyId> {
        let ring = self.ring.as_ref().ok_or_else(not_encrypted)?;
        let environment = &self.environment;
        self.vault.refuse_if_stale()?;
        let mut slot =
            KeySlot::create(ring, secret, self.store_id, cost, &*environment.randomness)?;
        label.clone_into(&mut slot.label);
        slot.created_ns = environment.clock.now_ns();
        let id = slots::put(&*self.store, &slot, environment)?;
        match self.vault.refuse_if_stale() {
            Ok(()) => Ok(id),
            Err(error) => {
                // One that stays opens nothing either.
                let _ = slots::remove(&*self.store, id, environment);
                Err(error)
            }
        }
    }

    /// Removes a key; refused for the last one and for the one in use. Two that remove each
    /// other's at once: at most one of them does.
    pub fn remove_key(&self, id: KeyId) -> Result<()> {
        if self.current_key == Some(id) {
            return Err(Error::invalid("the key in use cannot be removed; open with another one"));
        }
        slots::remove(&*self.store, id, &self.environment)
    }

    /// Whether that opens the key in use.
    pub fn opens_current_key(&self, secret: Secret<'_>) -> Result<bool> {
        let Some(id) = self.current_key else { return Ok(false) };
        match slots::read(&*self.store, id)?.open(secret, self.store_id) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WrongPassword => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Replaces the password or key file in use by another; returns the new slot's name.
    pub fn change_key<'a>(
        &self,
        secret: impl Into<Secret<'a>>,
        cost: KdfCost,
        label: &str,
    ) -> Result<KeyId> {
        let old = self.current_key.ok_or_else(not_encrypted)?;
        let new = self.add_key(secret, cost, label)?;
        slots::remove(&*self.store, old, &self.environment).context(|| {
            format!("the new one was added as key {new}, and the old one was not removed")
        })?;
        // A rotation that came between has left the new slot behind.
        self.vault.refuse_if_stale().context(|| "the new key opens nothing")?;
        Ok(new)
    }
}

fn not_encrypted() -> Error {
    Error::invalid("the store is not encrypted, so it has no keys")
}

fn configuration_of(
    options: &InitOptions,
    (store_id, decisions): (StoreId, &str),
    environment: &Environment,
    master_key: Option<&MasterKey>,
) -> Result<Configuration> {
    let mut configuration = Configuration {
        format_version: onefold_format::FORMAT_VERSION,
        store_id: store_id.to_string(),
        created_ns: environment.clock.now_ns(),
        encryption: match options.suite {
            Suite::None => NO_ENCRYPTION.into(),
            Suite::Aes256Gcm => AES_256_GCM.into(),
        },
        hash: options.hash.to_string(),
        chunker: ChunkerSettings {
            kind: options.chunker.kind.to_string(),
            size_min_bytes: options.chunker.size_min_bytes,
            size_avg_bytes: options.chunker.size_avg_bytes,
            size_max_bytes: options.chunker.size_max_bytes,
            regression_depth: options.chunker.regression_depth,
            tar_aware: options.tar_aware,
        },
        compression: options.compression.of_store().to_string(),
        delta: match options.delta {
            usual if usual == DeltaChoice::default() => String::new(),
            other => other.to_string(),
        },
        container_size_bytes: options.container_size_bytes,
        decisions: decisions.to_owned(),
        authenticity: String::new(),
    };
    if let Some(key) = master_key {
        let tag = key.authenticate(contexts::CONFIGURATION, &configuration.authenticated_bytes());
        configuration.authenticity = hex::encode(tag);
    }
    Configuration::decode(&configuration.encode()?).map_err(|e| e.with_kind(ErrorKind::Invalid))
}

/// Whether the key's holder wrote this configuration.
pub(crate) fn is_authentic(configuration: &Configuration, key: &MasterKey) -> bool {
    let tag = key.authenticate(contexts::CONFIGURATION, &configuration.authenticated_bytes());
    hex::encode(tag) == configuration.authenticity
}

/// Refuses a store that says it is not encrypted if anything says that it is.
fn refuse_if_encrypted(store: &dyn Store, id: StoreId, expectation: Expectation<'_>) -> Result<()> {
    let mut has_keys = false;
    store.list_names(layout::KEYS, &mut |name| {
        let of = layout::last_component(name).split('.').next().unwrap_or_default();
        has_keys |= of.parse::<KeyId>().is_ok();
        Ok(())
    })?;
    let because = match expectation {
        Expectation::Encrypted { because, but_for } if !but_for.contains(&id) => because,
        _ if has_keys => "there are passwords in its directory 'keys'",
        _ => return Ok(()),
    };
    Err(Error::new(
        ErrorKind::Tampered,
        format!(
            "{} says that it is not encrypted, but {because}. Somebody may have changed it to get \
             at what you store: nothing was read or written. Bring 'config' and 'config.copy' back \
             from a copy of the store; only if you made this store without encryption yourself, \
             take away what speaks against it",
            store.describe()
        ),
    ))
}

fn new_slot(
    ring: &KeyRing,
    password: &[u8],
    store_id: StoreId,
    options: &InitOptions,
    environment: &Environment,
) -> Result<KeySlot> {
    let mut slot =
        KeySlot::create(ring, password, store_id, options.kdf_cost, &*environment.randomness)?;
    slot.label.clone_from(&options.key_label);
    slot.created_ns = environment.clock.now_ns();
    Ok(slot)
}
