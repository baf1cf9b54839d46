//! Chunks without bytes that come to the product's stream machine one by one.

use onefold_policy::stream::Batch;
use onefold_types::Fingerprint;

/// A batch of one chunk; what stands for its bytes is `payload`.
pub(crate) struct Single<P> {
    pub fingerprint: Fingerprint,
    pub size_bytes: u32,
    pub payload: P,
}

impl<P: Clone> Batch for Single<P> {
    type Payload = P;

    fn len(&self) -> usize {
        1
    }

    fn weight(&self) -> usize {
        1
    }

    fn fingerprint(&self, _position: usize) -> &Fingerprint {
        &self.fingerprint
    }

    fn size_bytes(&self, _position: usize) -> u32 {
        self.size_bytes
    }

    fn payload(&self, _position: usize) -> &P {
        &self.payload
    }
}
