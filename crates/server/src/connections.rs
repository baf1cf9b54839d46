//! Connections: how many a server takes, from which addresses, and for how long.
//!
//! # Algorithm
//! A connection has a [`Place`] from its first byte to its last; the server closes one that gets
//! none. When few places are left, in all or for an address, the server ends each connection behind
//! its answer, so that no idle client holds a place for which others wait.
//!
//! A stream ([`Bounded`]) fails, and ends its connection, when its client takes no byte of an
//! answer for too long. The time is measured below TLS, where bytes leave.
//!
//! # Invariants
//! There are no more places than the process may have open files for.

use crate::limits::{
    ADDRESS_CONNECTIONS_MAX, CONNECTION_FILES, CONNECTIONS_MAX, CONNECTIONS_MIN, OWN_FILES,
};
use axum_server::accept::Accept;
use std::collections::HashMap;
use std::future::{Future as _, Ready, ready};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Of places that are free, the part that is the last ones.
const LAST_PART: usize = 4;

/// The connections that a process with this limit of open files takes beside its stores' files.
pub fn connections_max(open_files: usize, of_stores: usize) -> usize {
    let left = open_files.saturating_sub(of_stores + OWN_FILES);
    (left / CONNECTION_FILES).clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)
}

/// Places for connections.
pub struct Places {
    max: usize,
    of_address_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    count: usize,
    by_network: HashMap<IpAddr, usize>,
}

/// One of them, until it is dropped.
pub struct Place {
    places: Arc<Places>,
    network: IpAddr,
}

impl Places {
    /// Places for `max` connections; one address may have all of them if a proxy is in front.
    pub fn new(max: usize, are_by_proxy: bool) -> Self {
        let of_address_max = if are_by_proxy { max } else { ADDRESS_CONNECTIONS_MAX.min(max) };
        Self { max, of_address_max, taken: Mutex::default() }
    }

    /// One for a connection from an address.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let network = network_of(address);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by_network.get(&network).copied().unwrap_or(0);
        if taken.count >= self.max || own >= self.of_address_max {
            return None;
        }
        taken.count += 1;
        taken.by_network.insert(network, own + 1);
        Some(Place { places: Arc::clone(self), network })
    }
}

impl Place {
    /// Whether few are left, of all or of its address.
    pub fn is_scarce(&self) -> bool {
        let Places { max, of_address_max, taken } = &*self.places;
        let taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by_network.get(&self.network).copied().unwrap_or(0);
        let are_last =
            |taken: usize, max: usize| max.saturating_sub(taken) < max.div_ceil(LAST_PART);
        are_last(taken.count, *max) || are_last(own, *of_address_max)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.count -= 1;
        if let Some(own) = taken.by_network.get_mut(&self.network) {
            *own -= 1;
            if *own == 0 {
                taken.by_network.remove(&self.network);
            }
        }
    }
}

/// What counts as one address: of version 6 a user has a network of 64 bits.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address => address,
    }
}

/// Bounds how long what is written to a connection is not taken.
#[derive(Clone, Copy)]
pub struct BoundedAcceptor(pub Duration);

impl<I, S> Accept<I, S> for BoundedAcceptor {
    type Stream = Bounded<I>;
    type Service = S;
    type Future = Ready<io::Result<(Bounded<I>, S)>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        ready(Ok((Bounded { stream, patience: self.0, late: None }, service)))
    }
}

/// A stream whose client has to take the bytes of answers.
pub struct Bounded<I> {
    stream: I,
    patience: Duration,
    /// Runs while the client takes nothing.
    late: Option<Pin<Box<Sleep>>>,
}

impl<I> Bounded<I> {
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.late = None;
            return written;
        }
        let patience = self.patience;
        let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        let said = "nobody takes the answer";
        late.as_mut().poll(context).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, said)))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Bounded<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Bounded<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn r131_one_address_takes_its_part_of_the_places_and_others_the_rest() {
        let places = Arc::new(Places::new(CONNECTIONS_MAX, false));
        let take = |text: &str| places.take(address(text));
        let own: Vec<_> =
            (0..ADDRESS_CONNECTIONS_MAX).map(|_| take("192.0.2.1").unwrap()).collect();
        // However it is written.
        assert!(take("192.0.2.1").is_none() && take("::ffff:192.0.2.1").is_none());
        let network: Vec<_> = (0..ADDRESS_CONNECTIONS_MAX)
            .map(|number| take(&format!("2001:db8::{number:x}")).unwrap())
            .collect();
        assert!(take("2001:db8::ffff:1").is_none() && take("2001:db8:0:1::1").is_some());
        assert!(take("192.0.2.2").is_some_and(|place| !place.is_scarce()));
        assert!(own[0].is_scarce());
        drop((own, network));
        assert!(take("192.0.2.1").is_some_and(|place| !place.is_scarce()));
        assert!(places.taken.lock().unwrap().by_network.is_empty());
    }

    #[test]
    fn r131_all_together_take_no_more_than_there_are_and_a_proxy_all() {
        for (are_by_proxy, at_once) in [(true, 1), (false, CONNECTIONS_MAX)] {
            let places = Arc::new(Places::new(CONNECTIONS_MAX, are_by_proxy));
            let from = |number: usize| IpAddr::V4((number as u32 % at_once as u32).into());
            let mut all: Vec<_> =
                (0..CONNECTIONS_MAX).map(|number| places.take(from(number)).unwrap()).collect();
            assert!(places.take(from(0)).is_none() && all[0].is_scarce());
            all.truncate(CONNECTIONS_MAX / 2);
            assert!(places.take(from(0)).is_some_and(|place| !place.is_scarce()));
        }
    }

    #[test]
    fn r131_there_are_no_more_places_than_files_may_be_open() {
        let enough = 100 + OWN_FILES + CONNECTION_FILES * CONNECTIONS_MAX;
        assert_eq!(connections_max(usize::MAX, 100), CONNECTIONS_MAX);
        assert_eq!(connections_max(enough, 100), CONNECTIONS_MAX);
        assert_eq!(connections_max(enough - 1, 100), CONNECTIONS_MAX - 1);
        assert_eq!(connections_max(0, 100), CONNECTIONS_MIN);
    }
}
