//! The ports through pointers, so that layers wrap `Arc<dyn Store>` as they wrap a concrete store.

use crate::{Blobs, Decisions, Key, Listed, Store};
use onefold_types::Result;
use std::sync::Arc;

macro_rules! forward {
    ($pointer:ident) => {
        impl<T: Blobs + ?Sized> Blobs for $pointer<T> {
            fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
                (**self).put(key, bytes)
            }
            fn put_pieces(
                &self,
                key: &Key,
                next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
            ) -> Result<()> {
                (**self).put_pieces(key, next)
            }
            fn get(&self, key: &Key) -> Result<Vec<u8>> {
                (**self).get(key)
            }
            fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
                (**self).get_range(key, offset, buffer)
            }
            fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
                (**self).get_tail(key, length_bytes)
            }
            fn size(&self, key: &Key) -> Result<u64> {
                (**self).size(key)
            }
            fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
                (**self).list(prefix, each)
            }
            fn list_names(
                &self,
                prefix: &str,
                each: &mut dyn FnMut(&str) -> Result<()>,
            ) -> Result<()> {
                (**self).list_names(prefix, each)
            }
            fn delete(&self, key: &Key) -> Result<()> {
                (**self).delete(key)
            }
            fn settle(&self, prefix: &str) -> Result<()> {
                (**self).settle(prefix)
            }
            fn free_bytes(&self) -> Result<Option<u64>> {
                (**self).free_bytes()
            }

            $crate::pass_hints_on!(this => (**this));
        }

        impl<T: Decisions + ?Sized> Decisions for $pointer<T> {
            fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
                (**self).decide(key, value)
            }
            fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
                (**self).decided(key)
            }
            fn list_decided(
                &self,
                prefix: &str,
                each: &mut dyn FnMut(&str) -> Result<()>,
            ) -> Result<()> {
                (**self).list_decided(prefix, each)
            }
        }

        impl<T: Store + ?Sized> Store for $pointer<T> {
            fn describe(&self) -> String {
                (**self).describe()
            }

            $crate::pass_identity_on!(this => (**this));
        }
    };
}

forward!(Arc);
forward!(Box);
