//! Work on several threads that ends together.

use onefold_types::{Error, ErrorKind, Result};

/// Runs the same work on several threads and returns all results.
pub fn in_parallel<T: Send>(threads: usize, work: impl Fn() -> Result<T> + Sync) -> Vec<Result<T>> {
    std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(&work)).collect();
        let mut results = vec![work()];
        results.extend(
            helpers.into_iter().map(|helper| helper.join().unwrap_or_else(|_| Err(stopped()))),
        );
        results
    })
}

/// Runs the same work on several workers, each on a thread of its own.
pub fn for_each_in_parallel<W: Send>(
    workers: &mut [W],
    work: impl Fn(&mut W) -> Result<()> + Sync,
) -> Result<()> {
    if let [only] = workers {
        return work(only);
    }
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> =
            workers.iter_mut().map(|worker| scope.spawn(move || work(worker))).collect();
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(stopped())))
    })
}

fn stopped() -> Error {
    Error::new(ErrorKind::Io, "a collecting thread has stopped")
}
