//! Whether a server refuses to give a file a name that is taken: found out by trying.
//!
//! # Algorithm
//! `tmp/first` and `tmp/second` are made as every object is. Naming the second as the first must be
//! refused, and the first stay what it was; then [`RACERS`] threads name one file each alike,
//! and exactly one may win. Whoever opens the store for writing later names the second as the first
//! again: one request, which must be refused. Where they are missing (the store was made in a
//! local directory) all is tried. Races show only what goes wrong often; what the proof rests on is
//! that a hard link is one call of the system, and no request that a server puts together itself.
//!
//! Names below `tmp` are no keys, so none of this is ever taken for the store's own.

use super::connection::Fault;
use super::naming::{directory_attributes, temporary_name};
use super::{SftpStore, TEMPORARY_DIRECTORY};
use crate::stopping::Effect;
use onefold_types::{Error, Result};
use russh_sftp::protocol::OpenFlags;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Threads that race for one name.
pub const RACERS: usize = 8;
const FIRST: &str = "tmp/first";
const SECOND: &str = "tmp/second";
/// Bytes of a file of the proof.
const CONTENT_BYTES: usize = 64;

impl SftpStore {
    /// Makes the directory of a new store, and those above it.
    pub(super) fn make_root(&self) -> Result<()> {
        self.wait("making the directory", Effect::Write, async |connection| {
            if !connection.is_absent(&self.root).await? {
                return Ok(());
            }
            let ends = self.root.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
            for end in ends.chain([self.root.len()]) {
                let path = self.root.get(..end).unwrap_or_default();
                if connection.is_absent(path).await? {
                    let attributes = directory_attributes();
                    match connection.ask(connection.session.mkdir(path, attributes)).await {
                        Err(Fault::Refused(..)) if !connection.is_absent(path).await? => {}
                        made => drop(made?),
                    }
                }
            }
            Ok(())
        })?;
        // Its entry is durable as far as the one above can be opened.
        let above = match self.root.rsplit_once('/') {
            Some(("", _)) => "/",
            Some((above, _)) => above,
            None => ".",
        };
        self.wait("making the directory durable", Effect::Write, async |connection| {
            if connection.can.sync
                && let Ok(open) = connection.open(above, OpenFlags::READ).await
            {
                let _ = open.sync(0).await;
            }
            Ok(())
        })
    }

    /// Whether it is still so.
    pub(super) fn prove_again(&self) -> Result<()> {
        let is_refused =
            self.wait("trying a name that is taken", Effect::Write, async |connection| match self
                .take_name(connection, SECOND, &self.at(FIRST))
                .await
            {
                Ok(()) => Ok(Some(false)),
                Err(fault) if fault.is_absence() => Ok(None),
                Err(Fault::Refused(..)) => Ok(Some(true)),
                Err(fault) => Err(fault),
            })?;
        match is_refused {
            Some(true) => Ok(()),
            Some(false) => Err(self.unfit("a name that was taken was given to another file")),
            None => self.prove_first(),
        }
    }

    /// All of it.
    pub(super) fn prove_first(&self) -> Result<()> {
        let content = self.make_for_proof(FIRST)?;
        self.make_for_proof(SECOND)?;
        if self.try_name(SECOND, FIRST)? || self.content_of(FIRST)? != content {
            return Err(self.unfit("a name that was taken was given to another file"));
        }
        match self.race()? {
            1 => Ok(()),
            winners => {
                Err(self.unfit(&format!("{winners} of {RACERS} won a name that only one may")))
            }
        }
    }

    pub(super) fn unfit(&self, why: &str) -> Error {
        Error::invalid(format!(
            "{} cannot hold a store: {why}. Snapshots and collections are decided once, which \
             needs a server that gives a name only once: OpenSSH's does (hardlink@openssh.com), on \
             a file system with hard links; use another one, or a local directory",
            self.name
        ))
    }

    /// A file of the proof, and what is in it now.
    fn make_for_proof(&self, name: &str) -> Result<Vec<u8>> {
        let temporary = self.write_for_proof()?;
        let is_made = self.try_name(&temporary, name)?;
        self.discard(&temporary);
        let content = self.content_of(name)?;
        match content.is_empty() && is_made {
            true => Err(self.unfit("a file that was written is empty")),
            false => Ok(content),
        }
    }

    fn write_for_proof(&self) -> Result<String> {
        let temporary = temporary_name()?;
        // Nobody else writes the same.
        let content = format!("{:<width$}", temporary_name()?, width = CONTENT_BYTES);
        self.write_part(&temporary, 0, content.as_bytes())?;
        Ok(temporary)
    }

    /// Whether a file got a name below `tmp`. A refusal without anything of that name is an error.
    fn try_name(&self, temporary: &str, name: &str) -> Result<bool> {
        let target = self.at(name);
        let mut was_asked = false;
        self.wait("trying to give a name", Effect::Write, async |connection| {
            let again = std::mem::replace(&mut was_asked, true);
            match self.take_name(connection, temporary, &target).await {
                Ok(()) => Ok(true),
                Err(fault @ Fault::Refused(..)) => match connection.is_absent(&target).await? {
                    true => Err(fault),
                    false if again => self.is_same(connection, temporary, &target).await,
                    false => Ok(false),
                },
                Err(fault) => Err(fault),
            }
        })
    }

    fn content_of(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.at(name);
        self.wait(&format!("reading '{name}'"), Effect::Read, async |connection| {
            let file = connection.open(&path, OpenFlags::READ).await?;
            let mut content = vec![0; CONTENT_BYTES];
            let read = file.read(0, &mut content).await?;
            content.truncate(read);
            Ok(content)
        })
    }

    pub(super) fn discard(&self, name: &str) {
        let path = self.at(name);
        let _ = self.wait("removing a file", Effect::Write, async |connection| {
            connection.ask(connection.session.remove(&path)).await.map(drop)
        });
    }

    /// How many of several that name a file alike at once are told that it is theirs.
    fn race(&self) -> Result<usize> {
        let number = temporary_name()?;
        let number = number.rsplit_once('-').map_or("", |(_, number)| number);
        let name = format!("{TEMPORARY_DIRECTORY}/race-{number}");
        let (barrier, winners) = (Barrier::new(RACERS), AtomicUsize::new(0));
        let run = || -> Result<()> {
            let written = self.write_for_proof();
            barrier.wait();
            let temporary = written?;
            let named = self.try_name(&temporary, &name);
            self.discard(&temporary);
            if named? {
                winners.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        };
        let outcomes: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..RACERS).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        self.discard(&name);
        for outcome in outcomes {
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(winners.into_inner())
    }
}
