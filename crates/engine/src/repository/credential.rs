//! What somebody opens a store by: a password, or what a key file holds. Both are wiped from memory
//! when they are dropped.

use onefold_crypto::{KeyFile, Secret};
use zeroize::Zeroizing;

/// A password, wiped from memory when dropped.
pub type Password = Zeroizing<Vec<u8>>;

/// What opens a store.
pub enum Credential {
    /// A password.
    Password(Password),
    /// The key in a key file.
    KeyFile(KeyFile),
}

impl Credential {
    /// What slots are tried with.
    #[must_use]
    pub fn secret(&self) -> Secret<'_> {
        match self {
            Self::Password(password) => Secret::Password(password),
            Self::KeyFile(file) => Secret::KeyFile(file),
        }
    }
}
