//! Objects that are longer than one put: uploaded in parts, and visible once all of them are there.
//!
//! # Invariants
//! The completion of an upload may replace what was put meanwhile; so the name is looked at before,
//! and only names that are made of random numbers are written this way. One that fails is given up:
//! nothing of it is visible, and the server drops its parts.

use super::{BucketStore, taken};
use crate::stopping::Effect;
use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload};
use onefold_types::{ErrorKind, Result};

/// What is longer is uploaded in parts of this length.
pub const PART_BYTES: usize = 8 << 20;

/// Appends a piece, and says whether more follow.
pub(super) type NextPiece<'a> = &'a mut dyn FnMut(&mut Vec<u8>) -> Result<bool>;

impl BucketStore {
    /// Uploads what begins with `first`, in parts; nothing follows without `next`.
    pub(super) fn upload(
        &self,
        path: &ObjectPath,
        first: Vec<u8>,
        next: Option<NextPiece<'_>>,
    ) -> Result<()> {
        let what = format!("writing '{path}'");
        match self.size_at(path) {
            Ok(_) => return Err(taken(path)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let begun = self.wait_for(Effect::Write, 0, self.objects.put_multipart(path));
        let mut upload = begun.map_err(|answer| self.failed(&what, &answer))?;
        let put = self.put_parts(upload.as_mut(), first, next, &what);
        let put = put.and_then(|()| {
            let completed = self.wait_for(Effect::Write, 0, upload.complete());
            completed.map(drop).map_err(|answer| self.failed(&what, &answer))
        });
        if put.is_err() {
            // Parts that are left behind take room until the bucket's own rules remove them.
            let _ = self.wait_for(Effect::Write, 0, upload.abort());
        }
        put
    }

    fn put_parts(
        &self,
        upload: &mut dyn MultipartUpload,
        first: Vec<u8>,
        mut next: Option<NextPiece<'_>>,
        what: &str,
    ) -> Result<()> {
        let (mut part, mut piece) = (first, Vec::new());
        while next.is_some() || !part.is_empty() {
            while let Some(more) = next.as_mut().filter(|_| part.len() < PART_BYTES) {
                piece.clear();
                if !more(&mut piece)? {
                    next = None;
                }
                part.extend_from_slice(&piece);
            }
            // All but the last one have the same length.
            let rest = part.split_off(part.len().min(PART_BYTES));
            let bytes = Bytes::from(std::mem::replace(&mut part, rest));
            let length = bytes.len() as u64;
            let put = upload.put_part(PutPayload::from_bytes(bytes));
            let put = self.wait_for(Effect::Write, length, put);
            put.map_err(|answer| self.failed(what, &answer))?;
        }
        Ok(())
    }
}
