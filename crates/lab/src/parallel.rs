//! Many independent jobs on several threads, results in order.
//!
//! Concurrency: jobs are taken off one counter; nothing else is shared. After the first failure no
//! further job is begun, and that failure is returned.

use onefold_types::Result;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Threads that this machine runs at once.
#[must_use]
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `work` applied to every item; results in the order of the items.
///
/// # Errors
/// The first failure met.
pub fn map<I: Sync, T: Send>(
    items: &[I],
    threads: usize,
    work: impl Fn(&I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<T>)>> = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(place) else {
                        return;
                    };
                    let result = work(item);
                    if result.is_err() {
                        next.store(items.len(), Ordering::Relaxed);
                    }
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((place, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::Error;

    #[test]
    fn results_come_in_order() {
        let items: Vec<u64> = (0..1000).collect();
        for threads in [1, 2, 7, 2000] {
            let squares = map(&items, threads, |item| Ok(item * item)).unwrap();
            assert!(squares.iter().zip(&items).all(|(square, item)| *square == item * item));
        }
        assert!(map(&[] as &[u64], 4, |item| Ok(*item)).unwrap().is_empty());
    }

    #[test]
    fn a_failure_ends_it() {
        let items: Vec<u64> = (0..100).collect();
        let outcome = map(&items, 2, |item| match item {
            50 => Err(Error::invalid("fifty")),
            _ => Ok(*item),
        });
        assert_eq!(outcome.unwrap_err().to_string(), "fifty");
    }
}
