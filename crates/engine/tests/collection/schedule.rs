//! Schedules: which actor makes its next step when, so that a run can be chosen and played again.
//!
//! Every actor works on the store through its own [`Gated`](crate::gated::Gated) handle, from which
//! each operation that matters to the protocol waits for the actor's turn. A step is one such
//! operation; between two steps an actor runs freely, alone.
//!
//! A backup may renew its session (W8) in a second thread, which is an actor of its own: the
//! *renewer* of actor `a` among `n` is actor `n + a`. Its first step of each renewal is the tick.
//! It exists while the backup builds its tree. The two share locks, so that one of them may have
//! the turn and wait for the other: then the other makes a step out of turn.
//!
//! A crash is an actor all of whose operations fail from some step on; a power loss is the crash of
//! all. An actor that gets no turn until all others have ended is frozen, and resumes.

use crossbeam_channel::{Receiver, TryRecvError};
use onefold_store::layers::Operation;
use onefold_types::environment::SeededRandomness;
use onefold_types::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// After so long without a step a renewal and its backup are taken to wait for each other.
const STALL: Duration = Duration::from_millis(3);
/// How often a renewer looks whether its backup has ended.
const LOOK: Duration = Duration::from_millis(1);

/// What a tick is called among the steps.
pub const TICK: &str = "tick";

/// A part of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment {
    /// The actor makes so many steps, fewer if it ends.
    Run(usize, usize),
    /// The actor goes on until it is about to do this below this prefix.
    Until(usize, Operation, &'static str),
    /// The actor's operations fail from now on, until it has ended.
    Crash(usize),
    /// The actor goes on to its end; a renewer looks no more.
    End(usize),
    /// All crash, and what was not durable is lost.
    PowerLoss,
}

/// One whole renewal by this renewer.
pub fn renewal(renewer: usize) -> [Segment; 2] {
    [Segment::Run(renewer, 1), Segment::Until(renewer, Operation::Size, TICK)]
}

/// What the actor that has its turn may do.
enum Turn {
    Steps(usize),
    Until(Operation, &'static str),
    Free,
}

struct State {
    segments: VecDeque<Segment>,
    /// Actors without their renewers.
    actors: usize,
    actor: usize,
    turn: Turn,
    ended: Vec<bool>,
    crashed: Vec<bool>,
    /// Whether there is somebody to have a turn; renewers come and go.
    present: Vec<bool>,
    /// Whether a renewer is between two ticks.
    renewing: Vec<bool>,
    power_lost: bool,
    steps: Vec<usize>,
    trace: Vec<(usize, Operation, String)>,
    /// Rules of the protocol that were seen to be broken.
    broken: Vec<String>,
}

impl State {
    /// The next segment whose actor has not ended; after the last one the actors end one by one.
    fn next(&mut self) {
        while let Some(segment) = self.segments.pop_front() {
            let (actor, turn) = match segment {
                Segment::Run(actor, steps) => (actor, Turn::Steps(steps)),
                Segment::Until(actor, operation, prefix) => (actor, Turn::Until(operation, prefix)),
                Segment::Crash(actor) | Segment::End(actor) => (actor, Turn::Free),
                Segment::PowerLoss => {
                    self.power_lost = true;
                    self.crashed.fill(true);
                    continue;
                }
            };
            if let Segment::Crash(actor) = segment
                && !self.ended[actor]
            {
                self.crashed[actor] = true;
                self.crashed[self.actors + actor] = true;
            }
            if self.ended[actor] || !self.present[actor] {
                continue;
            }
            (self.actor, self.turn) = (actor, turn);
            return;
        }
        if let Some(actor) = self.ended[..self.actors].iter().position(|ended| !ended) {
            (self.actor, self.turn) = (actor, Turn::Free);
        }
    }

    fn take(&mut self, operation: Operation, name: &str) -> bool {
        match &mut self.turn {
            Turn::Steps(0) => false,
            Turn::Steps(left) => {
                *left -= 1;
                true
            }
            Turn::Until(wanted, prefix) => !(*wanted == operation && name.starts_with(*prefix)),
            Turn::Free => true,
        }
    }

    fn note(&mut self, actor: usize, operation: Operation, name: &str) {
        self.steps[actor] += 1;
        self.trace.push((actor, operation, name.to_owned()));
    }

    /// Whether a renewal of the actor's process is under way.
    fn is_renewing(&self, actor: usize) -> bool {
        self.renewing[self.actors + actor % self.actors]
    }

    fn leave(&mut self, actor: usize) {
        self.present[actor] = false;
        self.renewing[actor] = false;
        if self.actor == actor {
            self.next();
        }
    }
}

/// Who has the turn.
pub struct Schedule {
    state: Mutex<State>,
    changed: Condvar,
}

fn crashed() -> Error {
    Error::new(ErrorKind::Io, "this process has crashed")
}

impl Schedule {
    pub fn new(actors: usize, segments: &[Segment]) -> Arc<Self> {
        let mut state = State {
            segments: segments.iter().copied().collect(),
            actors,
            actor: 0,
            turn: Turn::Free,
            ended: vec![false; 2 * actors],
            crashed: vec![false; 2 * actors],
            present: (0..2 * actors).map(|actor| actor < actors).collect(),
            renewing: vec![false; 2 * actors],
            power_lost: false,
            steps: vec![0; 2 * actors],
            trace: Vec::new(),
            broken: Vec::new(),
        };
        state.next();
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to happen; whether nothing did for this long.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        longest: Option<Duration>,
    ) -> (MutexGuard<'a, State>, bool) {
        let Some(longest) = longest else {
            return (self.changed.wait(state).unwrap_or_else(PoisonError::into_inner), false);
        };
        let waited = self.changed.wait_timeout(state, longest);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        (state, waited.timed_out())
    }

    /// Waits for the actor's turn to make this step.
    pub fn step(&self, actor: usize, operation: Operation, name: &str) -> Result<()> {
        let mut state = self.lock();
        loop {
            if state.crashed[actor] {
                return Err(crashed());
            }
            if state.actor == actor {
                if state.take(operation, name) {
                    state.note(actor, operation, name);
                    return Ok(());
                }
                state.next();
                self.changed.notify_all();
                continue;
            }
            let made = state.trace.len();
            let longest = state.is_renewing(actor).then_some(STALL);
            let (again, is_still) = self.wait(state, longest);
            state = again;
            let is_of_us = state.actor % state.actors == actor % state.actors;
            if is_still && is_of_us && state.trace.len() == made && !state.crashed[actor] {
                state.note(actor, operation, name);
                return Ok(());
            }
        }
    }

    /// A renewer begins to wait for ticks.
    pub fn enter(&self, renewer: usize) {
        let mut state = self.lock();
        state.present[renewer] = !state.ended[renewer];
    }

    /// A renewer has gone.
    pub fn leave(&self, renewer: usize) {
        self.lock().leave(renewer);
        self.changed.notify_all();
    }

    /// Waits for a renewer's turn to begin a renewal; `false` if there will be none.
    pub fn tick(&self, renewer: usize, stopped: &Receiver<()>) -> bool {
        let mut state = self.lock();
        state.renewing[renewer] = false;
        loop {
            let is_over = stopped.try_recv() == Err(TryRecvError::Disconnected);
            if is_over || state.crashed[renewer] || state.ended[renewer] {
                return false;
            }
            if state.actor == renewer {
                if matches!(state.turn, Turn::Free) {
                    state.ended[renewer] = true;
                    return false;
                }
                if state.take(Operation::Size, TICK) {
                    state.note(renewer, Operation::Size, TICK);
                    state.renewing[renewer] = true;
                    // Whoever waits for the turn of this backup must look out for stalls from now.
                    self.changed.notify_all();
                    return true;
                }
                state.next();
                self.changed.notify_all();
                continue;
            }
            (state, _) = self.wait(state, Some(LOOK));
        }
    }

    /// The actor has ended; the turn goes to another.
    pub fn end(&self, actor: usize) {
        let mut state = self.lock();
        state.ended[actor] = true;
        let renewer = state.actors + actor;
        state.ended[renewer] = true;
        if state.actor == actor {
            state.next();
        }
        self.changed.notify_all();
    }

    pub fn has_crashed(&self, actor: usize) -> bool {
        self.lock().crashed[actor]
    }

    /// Fails if the actor has crashed.
    pub fn pass(&self, actor: usize) -> Result<()> {
        if self.has_crashed(actor) { Err(crashed()) } else { Ok(()) }
    }

    pub fn has_lost_power(&self) -> bool {
        self.lock().power_lost
    }

    /// A rule of the protocol was seen to be broken.
    pub fn breaks(&self, rule: String) {
        self.lock().broken.push(rule);
    }

    /// Rules of the protocol that were seen to be broken.
    pub fn broken(&self) -> Vec<String> {
        self.lock().broken.clone()
    }

    /// Steps that each actor made.
    pub fn steps(&self) -> Vec<usize> {
        self.lock().steps.clone()
    }

    /// How many steps like this one were made.
    pub fn count(&self, is_like: impl Fn(usize, Operation, &str) -> bool) -> usize {
        let state = self.lock();
        state
            .trace
            .iter()
            .filter(|(actor, operation, name)| is_like(*actor, *operation, name))
            .count()
    }

    /// What happened, for the message of a test that fails.
    pub fn trace(&self) -> String {
        let state = self.lock();
        let mut text = String::new();
        for (actor, operation, name) in &state.trace {
            text += &format!("{actor}: {operation:?} {name}\n");
        }
        text
    }
}

/// A random schedule: one seed is one schedule.
pub fn random_segments(seed: u64, actors: usize) -> Vec<Segment> {
    random_segments_with(seed, actors, &[])
}

/// A random schedule in which these actors renew their sessions.
pub fn random_segments_with(seed: u64, actors: usize, renewing: &[usize]) -> Vec<Segment> {
    let randomness = SeededRandomness::new(seed ^ 0x5eed);
    let below = |bound: usize| randomness.below(bound as u64) as usize;
    let mut segments = Vec::new();
    // Few long segments find other things than many short ones.
    let (count, longest) = [(4, 60), (8, 30), (20, 12)][below(3)];
    for _ in 0..count + below(count) {
        segments.push(Segment::Run(below(actors), 1 + below(longest)));
        if below(40) == 0 {
            segments.push(Segment::Crash(below(actors)));
        }
        // Most renewals are whole: what they look at changes seldom.
        if !renewing.is_empty() && below(2) == 0 {
            let renewer = actors + renewing[below(renewing.len())];
            match below(4) {
                0 => segments.push(Segment::Run(renewer, 1 + below(8))),
                _ => segments.extend(renewal(renewer)),
            }
        }
    }
    // Whoever is left ends in any order.
    let mut left: Vec<usize> = (0..actors).collect();
    while !left.is_empty() {
        segments.push(Segment::End(left.swap_remove(below(left.len()))));
    }
    segments
}
