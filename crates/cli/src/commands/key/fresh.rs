//! What a new key is opened by: a password, or a key file that is there or is made.
//!
//! A key file is made durable before anything is stored that it opens, and never in the place of
//! another file: that may be the only way into another store.

use crate::context::Context;
use crate::options::KdfArguments;
use crate::password::{self, PasswordSource};
use crate::store_path;
use clap::Args;
use onefold_crypto::{KdfCost, KeyFile, OsRandomness};
use onefold_engine::repository::Credential;
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, KeyId, Result};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where a new, further password or key file comes from.
#[derive(Args, Debug)]
pub struct FreshArguments {
    /// Read the new password from this file
    #[arg(long, value_name = "FILE", group = "fresh")]
    new_password_file: Option<PathBuf>,
    /// Read the new password from what this shell command prints
    #[arg(long, value_name = "COMMAND", group = "fresh")]
    new_password_command: Option<String>,
    /// Make this file of 256 random bits, which opens the store in the place of a password, and
    /// takes no time to be tried
    #[arg(long, value_name = "FILE", group = "fresh")]
    #[arg(conflicts_with_all = ["kdf_memory", "kdf_passes"])]
    generate: Option<PathBuf>,
    /// Use this key file, which was made before
    #[arg(long, value_name = "FILE", group = "fresh")]
    #[arg(conflicts_with_all = ["kdf_memory", "kdf_passes"])]
    new_key_file: Option<PathBuf>,
    #[command(flatten)]
    kdf: KdfArguments,
}

impl FreshArguments {
    /// Stores a key: `store` is told what opens it, and what trying it costs.
    pub fn store(
        &self,
        context: &Context,
        store: impl FnOnce(&Credential, KdfCost) -> Result<KeyId>,
    ) -> Result<KeyId> {
        let cost = self.kdf.cost(context.memory.limit_bytes)?;
        let Some(path) = &self.generate else { return store(&self.given()?, cost) };
        if let Some(directory) = context.store_directory()? {
            store_path::refuse_inside(path, &directory)?;
        }
        let file = KeyFile::generate(&OsRandomness);
        write(path, &file)?;
        // It may open something all the same, if the answer was lost.
        store(&Credential::KeyFile(file), cost).context(|| {
            format!(
                "the key file '{}' was made, and opens nothing if 'onefold key list' shows no key \
                 for it",
                path.display()
            )
        })
    }

    fn given(&self) -> Result<Credential> {
        if let Some(path) = &self.new_key_file {
            return password::read_key_file(path).map(Credential::KeyFile);
        }
        let (file, command) = (self.new_password_file.clone(), self.new_password_command.clone());
        let source = PasswordSource::from_pair(file, command)?;
        let password = password::additional(source.as_ref()).context(|| "the new password")?;
        Ok(Credential::Password(password))
    }
}

/// Makes a key file that only its owner may read.
fn write(path: &Path, file: &KeyFile) -> Result<()> {
    let what = || format!("making the key file '{}'", path.display());
    let mistake = |cause: io::Error| match cause.kind() {
        io::ErrorKind::AlreadyExists => Error::invalid(format!(
            "{}: it is there already; --new-key-file adds a key file that was made before",
            what()
        )),
        _ => Error::io(what(), cause).with_kind(ErrorKind::Invalid),
    };
    let created = File::options().write(true).create_new(true).mode(0o600).open(path);
    let mut created = created.map_err(mistake)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let written = created
        .write_all(file.to_text().as_bytes())
        .and_then(|()| created.sync_all())
        .and_then(|()| File::open(directory.unwrap_or(Path::new(".")))?.sync_all());
    written.map_err(|cause| {
        let _ = std::fs::remove_file(path);
        Error::io(what(), cause)
    })
}
