//! What Onefold's own server says of itself: the client's name, its rights, and the room there is.
//!
//! A server of this kind replaces nothing by its making, and shows that by its own tests. So it is
//! not tried whether it does: what is asked is whether it is one, and whether its client may.

use super::BucketStore;
use crate::conditional;
use crate::service::Service;
use onefold_types::{Error, ErrorKind, Result};
use serde::Deserialize;
use std::sync::atomic::Ordering;

/// Where it is, below the store's name: no key has this one.
const ABOUT: &str = "about";

/// What a server says.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct About {
    /// By what name it knows this client.
    pub client: String,
    /// What the client may: `read`, `append`, `collect`, `metrics`.
    pub rights: Vec<String>,
    /// For how many bytes there is room.
    pub free_bytes: Option<u64>,
    /// Whether clients can tell each other something through it.
    #[serde(default)]
    pub notices: bool,
}

impl About {
    /// Whether the client may.
    #[must_use]
    pub fn may(&self, right: &str) -> bool {
        self.rights.iter().any(|it| it == right)
    }
}

impl BucketStore {
    /// What the server says; none if it is not Onefold's.
    ///
    /// # Errors
    ///
    /// Those of the server; `Invalid` if it is another one after all.
    pub fn about(&self) -> Result<Option<About>> {
        if self.service != Service::Onefold {
            return Ok(None);
        }
        let path = self.below(conditional::DIRECTORY).join(ABOUT);
        let said = self.whole(&path)?;
        let about: About = serde_json::from_slice(&said).map_err(|_| {
            Error::invalid(format!("what answers at {} is no server of Onefold", self.name))
        })?;
        self.has_notices.store(about.notices && about.may("append"), Ordering::Relaxed);
        Ok(Some(about))
    }

    /// Whether this client can tell others something ([`super::ServedNotices`]), as far as the
    /// server was asked.
    #[must_use]
    pub fn has_notices(&self) -> bool {
        self.has_notices.load(Ordering::Relaxed)
    }

    /// Makes sure that the client may put something.
    pub(crate) fn refuse_unless_appending(&self, about: &About) -> Result<()> {
        match about.may("append") {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::NotPermitted,
                format!(
                    "the client '{}' has no right 'append' at {}: it may {}",
                    about.client,
                    self.name,
                    match about.rights.is_empty() {
                        true => "do nothing".to_owned(),
                        false => format!("'{}' only", about.rights.join("', '")),
                    }
                ),
            )),
        }
    }
}
