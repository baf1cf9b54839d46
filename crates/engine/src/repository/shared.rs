//! What is opened once for each store and process: the index, caches.
//!
//! A repository does not know what these are: they belong to modules above it, one value of each
//! type.

use onefold_types::Result;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

type Value = Arc<dyn Any + Send + Sync>;

/// One value of each type, made when it is first asked for.
#[derive(Default)]
pub struct Shared {
    values: Mutex<HashMap<TypeId, Value>>,
}

impl Shared {
    /// The value of this type.
    pub fn get<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let known = values.get(&TypeId::of::<T>()).map(Arc::clone);
        if let Some(Ok(value)) = known.map(Arc::downcast::<T>) {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        values.insert(TypeId::of::<T>(), Arc::clone(&value) as Value);
        Ok(value)
    }
}
