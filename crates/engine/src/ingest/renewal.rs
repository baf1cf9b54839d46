//! Renewal: a running backup takes notice of a new epoch, so that nobody has to fence it (W8).
//!
//! A thread looks for a newer epoch from time to time. If there is one, the session reads what it
//! condemns, checks its parent again, looks again for every chunk that it found in a condemned
//! container, and only then declares itself ready for the epoch. If it cannot, it goes on as it is:
//! it commits before the collector loses patience, or is fenced and starts over.

use crate::chunk_store::ChunkStore;
use crate::session::WriterSession;
use crossbeam_channel::{RecvTimeoutError, bounded};
use onefold_types::SessionId;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(500);

/// Runs `work` and renews the session meanwhile.
pub fn while_renewing<T>(
    session: Option<&Mutex<WriterSession>>,
    parent: Option<SessionId>,
    store: &ChunkStore,
    work: impl FnOnce() -> T,
) -> T {
    let Some(session) = session else {
        return work();
    };
    let (stop, stopped) = bounded::<()>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
                // A failure leaves the session as it is, which is safe.
                let _ = session.renew(parent, |condemned| store.leave(condemned));
            }
        });
        let result = work();
        drop(stop);
        result
    })
}
