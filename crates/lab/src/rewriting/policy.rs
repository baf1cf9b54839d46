//! The ways of rewriting side by side, at an equal loss.
//!
//! A loss that is asked for is a limit, and policies use more or less of it; capping cannot be
//! asked for one at all. To compare what they make of equal space, the parameter of each is sought
//! by bisection until its loss over all versions is the one wanted, or just below.

use super::Sizes;
use super::ingest::{Stored, ingest};
use super::versions::Versions;
use onefold_policy::rewrite::{RewriteChoice, RewriteLimits, RewriteParameters};
use onefold_types::Result;

/// Trials of a bisection.
const TRIALS: u32 = 8;
/// Containers of the window, as in S2.32.
pub const WINDOW_CONTAINERS: usize = 8;

/// A way of rewriting.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Policy {
    /// The choice.
    pub choice: RewriteChoice,
    /// Containers of the window.
    pub window_containers: usize,
    /// Containers' worth of candidates.
    pub candidates_containers: u64,
    /// Whether of several copies of a chunk only the newest can be referred to; otherwise the
    /// policy chooses greedily (S2.21), which the paper says of its window only.
    pub knows_newest_only: bool,
}

impl Policy {
    /// With the window and the memory of S2.32.
    #[must_use]
    pub fn new(choice: RewriteChoice) -> Self {
        Self {
            choice,
            window_containers: WINDOW_CONTAINERS,
            candidates_containers: 5,
            knows_newest_only: false,
        }
    }

    /// The parameters of S2.32 for containers of this size.
    #[must_use]
    pub fn parameters(&self, sizes: Sizes) -> RewriteParameters {
        RewriteParameters {
            container_bytes: sizes.container_bytes,
            candidates_bytes_max: self.candidates_containers * sizes.container_bytes,
            window_containers: self.window_containers,
            ..RewriteParameters::default()
        }
    }
}

/// A way of rewriting with one free parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// None.
    None,
    /// By a level.
    Capping,
    /// By a loss.
    Flexible,
    /// By a loss.
    Window,
    /// By a loss.
    History,
    /// By a loss.
    Auto,
}

impl Kind {
    /// All, the paper's first.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Capping, Self::Flexible, Self::Window, Self::History, Self::Auto];

    /// The name in tables; the paper's, where it has one.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Capping => "capping",
            Self::Flexible => "FCRC",
            Self::Window => "LBW",
            Self::History => "history",
            Self::Auto => "auto",
        }
    }

    /// The policy that is asked for this loss; capping and none know none.
    #[must_use]
    pub fn with_loss(self, loss: f64) -> Policy {
        Way::of(self).with_loss(loss)
    }
}

/// A kind with what may be chosen beside its free parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The kind.
    pub kind: Kind,
    /// Old containers that a segment may refer to (Cap of S2.15).
    pub reads: Option<u32>,
    /// Whether the loss is that of each version, by what the one before it stored (S2.11).
    pub by_version: bool,
    /// See [`Policy::knows_newest_only`].
    pub knows_newest_only: bool,
    /// Containers of the window.
    pub window_containers: usize,
}

impl Way {
    /// With a budget of the whole store, no limit of reads, and all copies known.
    #[must_use]
    pub const fn of(kind: Kind) -> Self {
        Self {
            kind,
            reads: None,
            by_version: false,
            knows_newest_only: false,
            window_containers: WINDOW_CONTAINERS,
        }
    }

    /// With both bounds, as Algorithm 1 wants it (S2.28).
    #[must_use]
    pub const fn reads(self, reads: u32) -> Self {
        Self { reads: Some(reads), ..self }
    }

    /// With the budget of the paper.
    #[must_use]
    pub const fn by_version(self) -> Self {
        Self { by_version: true, ..self }
    }

    /// With the newest copies only.
    #[must_use]
    pub const fn newest(self) -> Self {
        Self { knows_newest_only: true, ..self }
    }

    /// With a window of so many containers.
    #[must_use]
    pub const fn window(self, window_containers: usize) -> Self {
        Self { window_containers, ..self }
    }

    /// The name in tables.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = self.kind.name().to_owned();
        if self.window_containers != WINDOW_CONTAINERS {
            name.push_str(&format!(", window of {}", self.window_containers));
        }
        if self.knows_newest_only {
            name.push_str(", newest copy");
        }
        if let Some(reads) = self.reads {
            name.push_str(&format!(", reads={reads}"));
        }
        if self.by_version {
            name.push_str(", paper's budget");
        }
        name
    }

    /// The policy that is asked for this loss; capping and none know none.
    #[must_use]
    pub fn with_loss(&self, loss: f64) -> Policy {
        let reads_max = self.reads.map(f64::from);
        let by_version = self.by_version;
        let limits = RewriteLimits { reads_max, by_version, ..RewriteLimits::loss(loss) };
        self.policy(match self.kind {
            Kind::None => RewriteChoice::None,
            Kind::Capping => RewriteChoice::Capping { level: None },
            Kind::Flexible => RewriteChoice::Flexible(limits),
            Kind::Window => RewriteChoice::Window(limits),
            Kind::History => RewriteChoice::History(limits),
            Kind::Auto => RewriteChoice::Auto(limits),
        })
    }

    /// Ingests such that the loss against `none` is `loss` or a little less.
    ///
    /// # Errors
    /// Those of the ingest.
    pub fn at_loss(
        &self,
        versions: &Versions,
        sizes: Sizes,
        none: &Stored,
        loss: f64,
    ) -> Result<(Policy, Stored)> {
        if self.kind == Kind::None {
            return Ok((self.with_loss(0.0), none.clone()));
        }
        // More of the parameter loses more.
        let range = match self.kind {
            Kind::Capping => Search { least: -CAPPING_LEVEL_MAX, most: 0.0, step: 1.0 },
            // A threshold between both bounds may leave most of the loss unused.
            _ if self.reads.is_some() => Search { most: LOSS_MAX, ..Search::by_loss(loss) },
            _ => Search::by_loss(loss),
        };
        range.at_loss(versions, sizes, none, loss, &|parameter| self.of_parameter(parameter))
    }

    fn of_parameter(&self, parameter: f64) -> Policy {
        match self.kind {
            Kind::Capping => self.policy(RewriteChoice::Capping { level: Some(-parameter as u32) }),
            _ => self.with_loss(parameter),
        }
    }

    fn policy(&self, choice: RewriteChoice) -> Policy {
        let Self { knows_newest_only, window_containers, .. } = *self;
        Policy { knows_newest_only, window_containers, ..Policy::new(choice) }
    }
}

/// The greatest loss that is asked for.
const LOSS_MAX: f64 = 0.9;

/// A capping level that is as good as none.
const CAPPING_LEVEL_MAX: f64 = 256.0;

/// A search for the parameter of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// A parameter that loses little enough.
    least: f64,
    /// One that loses too much.
    most: f64,
    /// The least difference that makes one.
    step: f64,
}

impl Search {
    /// For parameters that are losses asked for.
    #[must_use]
    pub fn by_loss(loss: f64) -> Self {
        Self { least: 0.0, most: (4.0 * loss).min(LOSS_MAX), step: 1e-4 }
    }

    /// The policy whose loss against `none` is `loss` or a little less.
    ///
    /// # Errors
    /// Those of the ingest.
    pub fn at_loss(
        self,
        versions: &Versions,
        sizes: Sizes,
        none: &Stored,
        loss: f64,
        of: &dyn Fn(f64) -> Policy,
    ) -> Result<(Policy, Stored)> {
        let Self { mut least, mut most, step } = self;
        let mut best = (of(least), none.clone());
        for trial in 0..TRIALS {
            let is_loss = step < 1.0;
            let middle = if trial == 0 && is_loss { 1.2 * loss } else { (least + most) / 2.0 };
            let parameter = (middle / step).floor() * step;
            if parameter <= least {
                break;
            }
            let policy = of(parameter);
            let stored = ingest(versions, sizes, &policy)?;
            if stored.loss(none) <= loss {
                least = parameter;
                best = (policy, stored);
            } else {
                most = parameter;
            }
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewriting::workloads;

    #[test]
    fn losses_are_made_equal_from_below() {
        let versions = workloads::papers_example(true).unwrap();
        let sizes = Sizes::PAPER;
        let none = ingest(&versions, sizes, &Kind::None.with_loss(0.0)).unwrap();
        for kind in [Kind::None, Kind::Capping, Kind::Flexible, Kind::Window] {
            let (policy, stored) = Way::of(kind).at_loss(&versions, sizes, &none, 0.07).unwrap();
            let loss = stored.loss(&none);
            assert!((0.0..=0.07).contains(&loss), "{}: {loss}", kind.name());
            let least = if kind == Kind::None { 0.0 } else { 0.03 };
            assert!(loss >= least, "{}: {loss} with {}", kind.name(), policy.choice);
        }
    }
}
