//! Room that an object takes: of its store's quota, and of what its client may put.

use crate::answers::Failure;
use crate::served::Served;
use crate::usage::Usage;
use std::sync::Arc;

/// Room that is given back unless what it was for is there.
pub struct Taken {
    served: Arc<Served>,
    usage: Arc<Usage>,
    client: String,
    bytes: u64,
    is_kept: bool,
}

impl Taken {
    /// Takes it, if there is so much.
    pub fn new(
        served: &Arc<Served>,
        usage: &Arc<Usage>,
        client: &str,
        quota_bytes: Option<u64>,
        bytes: u64,
    ) -> Result<Self, Failure> {
        served.take_room(bytes)?;
        if let Err(failure) = usage.take(client, bytes, quota_bytes) {
            served.give_back(bytes);
            return Err(failure);
        }
        let (served, usage) = (Arc::clone(served), Arc::clone(usage));
        Ok(Self { served, usage, client: client.to_owned(), bytes, is_kept: false })
    }

    /// What it was for is there.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.is_kept {
            self.served.give_back(self.bytes);
            self.usage.give_back(&self.client, self.bytes);
        }
    }
}
