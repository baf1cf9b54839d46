//! Ends the commands that this program has started, with whatever these have started in turn (R88).
//!
//! A command may have children that outlive it, as in `sh -c 'sleep 1000 & cat file; wait'`. The
//! program makes itself the process that orphans among its descendants fall to, so once a command
//! is dead its children are this program's own; they are killed, then theirs, until none is left.
//! What has left the process group, as daemons do, was meant to stay and is left alone.
//!
//! Commands are not given a process group of their own: in that of this program they may ask for a
//! password at the terminal, and Ctrl-C reaches them, those of another user included (`sudo`).
//!
//! Invariant: only processes are killed that are children of this one, and a child that nobody has
//! waited for keeps its number. Concurrency: may be called on any thread; whoever waits for a
//! command meanwhile is told that there is none.

use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, kill_process, set_child_subreaper, waitpid,
};
use std::collections::BTreeSet;

/// How often it is looked for children that the last ones have left behind.
const GENERATIONS_MAX: usize = 1024;

/// Has orphans among the descendants of this program fall to it, from now on.
pub fn adopt_orphans() {
    // Where it is refused, commands are ended all the same, and only what they started stays.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Kills all descendants in this program's process group, and waits for their end.
pub fn end_all() {
    // Of other users: they may not be killed, and end when nobody reads what they write.
    let mut spared = BTreeSet::new();
    for _ in 0..GENERATIONS_MAX {
        let mut left = children();
        left.retain(|child| !spared.contains(&child.as_raw_nonzero()));
        if left.is_empty() {
            return;
        }
        for child in left {
            match kill_process(child, Signal::KILL) {
                Ok(()) => drop(waitpid(Some(child), WaitOptions::empty())),
                Err(_) => drop(spared.insert(child.as_raw_nonzero())),
            }
        }
    }
}

/// The children of this process that are in its process group.
fn children() -> Vec<Pid> {
    let own = (getpid().as_raw_nonzero().get(), getpgrp().as_raw_nonzero().get());
    // What a process file system for other processes says must not be acted upon.
    let names_us = std::fs::read_link("/proc/self").is_ok_and(|name| name == own.0.to_string());
    let Some(entries) = names_us.then(|| std::fs::read_dir("/proc").ok()).flatten() else {
        return Vec::new();
    };
    let numbers =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_ours = |number: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{number}/stat"));
        status.is_ok_and(|status| parent_and_group(&status) == Some(own))
    };
    numbers.filter(is_ours).filter_map(Pid::from_raw).collect()
}

/// Parent and process group in what the kernel says of a process: `pid (name) state parent group`,
/// where the name may hold anything.
fn parent_and_group(status: &str) -> Option<(i32, i32)> {
    let (_, rest) = status.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r88_parents_and_groups_are_found_behind_any_name() {
        assert_eq!(parent_and_group("71 (a) S 4) R 7 9 3 0"), Some((7, 9)));
        assert_eq!(parent_and_group("71 (sleep) S 4 5 3 0"), Some((4, 5)));
        assert_eq!(parent_and_group("71 (sleep) S"), None);
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        let group = getpgrp().as_raw_nonzero().get();
        assert_eq!(parent_and_group(&own).unwrap().1, group);
    }
}
