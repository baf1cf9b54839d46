//! Room that an object takes: of its store's quota and of what its client may put; and in memory
//! while it arrives, of what its client may have there and of what all may.

use crate::answers::Failure;
use crate::served::Served;
use crate::usage::Usage;
use std::sync::Arc;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Room in memory, until it is dropped.
pub struct Room {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Room {
    /// Waits for it. Who waits for its own room takes none of the others' meanwhile.
    pub async fn of(
        own: Arc<Semaphore>,
        all: Arc<Semaphore>,
        units: u32,
    ) -> Result<Self, AcquireError> {
        let _own = own.acquire_many_owned(units).await?;
        let _all = all.acquire_many_owned(units).await?;
        Ok(Self { _own, _all })
    }
}

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
