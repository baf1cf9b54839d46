//! Renewal: a running backup takes notice of a new epoch, so that nobody has to fence it (W8).
//!
//! A thread looks for a newer epoch at every tick of the environment. If there is one, the session
//! reads what it condemns, checks its parent again, looks again for every chunk that it found in a
//! condemned container, and only then declares itself ready for the epoch. If it cannot, it goes on
//! as it is: it commits before the collector has waited long enough, or is fenced and starts over.

use crate::chunk_store::ChunkStore;
use crate::environment::Ticker;
use crate::session::WriterSession;
use crossbeam_channel::bounded;
use onefold_types::SessionId;
use std::sync::{Mutex, PoisonError};

/// Runs `work` and renews the session meanwhile, at every tick.
pub fn while_renewing<T>(
    ticker: &dyn Ticker,
    session: Option<&Mutex<WriterSession>>,
    parent: Option<SessionId>,
    store: &ChunkStore,
    work: impl FnOnce() -> T,
) -> T {
    let Some(session) = session else {
        return work();
    };
    let (stop, stopped) = bounded::<()>(0);
    let mut ticks = ticker.start();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while ticks.next(&stopped) {
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
