//! The ports through pointers, so that layers wrap `Arc<dyn Store>` as they wrap a concrete store.

use crate::{Blobs, Decisions, Key, Store};
use onefold_types::Result;
use std::sync::Arc;

macro_rules! forward {
    ($pointer:ident) => {
        impl<T: Blobs + ?Sized> Blobs for $pointer<T> {
            $crate::pass_blobs_on!(this => (**this));
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
