//! Selection: which containers are cleaned, so that space is freed for the least copying.
//!
//! Algorithm: FAST'17, section 3.1, "Select". Containers are sorted by the share of them that is
//! live, and those below a threshold are condemned: their live chunks are copied, they are deleted.
//! The threshold follows from what is asked for. Since containers are mostly dead or mostly live,
//! most of the space comes from few copies. Containers without a live chunk cost nothing to delete
//! and are always condemned; those without a dead one never, as nothing would be gained.
//!
//! How large chunks are is known in plain bytes and what is freed are stored ones, so stored bytes
//! are split by the share of plain bytes that is live.
//!
//! Beyond the paper: compression covers whole frames, so a chunk that dies costs the compression of
//! its neighbours unless it comes along. Where some of what is dead may stay, more containers are
//! condemned than the goal asks for, and as many dead bytes may come along in frames that are
//! copied as they are. Such a container frees nothing: what it would is carried elsewhere. So there
//! are none unless something has to be freed, and none that are mostly live.
//!
//! Whether something has to be freed is told by [`excess_bytes`], here and wherever it is asked if
//! a collection is due. Once something has to be, a part more than that is: sizes are estimates,
//! and a collection that has just met its goal must leave nothing for the next one.
//!
//! Containers may be condemned for another reason as well, however live they are: their chunks are
//! copied like all others.
//!
//! Invariants: what is condemned for space is a prefix of the order by live share (ties by age), so
//! the same space could not be freed by copying less from any shorter prefix; nothing is copied if
//! what is wholly dead meets the goal; what comes along dead never takes from what the goal asks
//! for; containers with a live chunk are copied from within the limit, or not at all; equal input,
//! in any order, gives equal output.

use onefold_types::ContainerId;

/// The share of live bytes that may stay unused, unless the user says otherwise.
pub const UNUSED_SHARE_DEFAULT: f64 = 0.05;
/// The part of what may stay unused that may come along in frames copied as they are; the other
/// part stays in containers that are not condemned.
const CARRIED_PART: f64 = 0.5;
/// The part of what may stay unused that a collection leaves at most, once it copies.
const LEFT_PART: f64 = 0.9;
/// Containers of which more is live are not condemned for the sake of what may come along: copying
/// them costs more than carrying frames elsewhere saves.
const CONDEMNED_TO_CARRY_SHARE_MAX: f64 = 0.75;

/// What is known of a container's use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContainerLiveness {
    /// Which container.
    pub container: ContainerId,
    /// Its size in the store.
    pub stored_bytes: u64,
    /// The sizes of all its chunks together.
    pub plain_bytes: u64,
    /// The sizes of its live chunks together.
    pub live_bytes: u64,
    /// How many chunks it has.
    pub chunks: u32,
    /// How many of them are live.
    pub live_chunks: u32,
}

impl ContainerLiveness {
    /// Whether deleting it needs no copy.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.live_chunks == 0 && self.live_bytes == 0
    }

    /// Whether cleaning it would gain nothing.
    #[must_use]
    pub fn is_wholly_live(&self) -> bool {
        let is_full = self.live_chunks >= self.chunks || self.live_bytes >= self.plain_bytes;
        !self.is_dead() && is_full
    }

    /// The share of plain bytes that is live, from zero to one.
    #[must_use]
    pub fn live_share(&self) -> f64 {
        if self.is_dead() {
            return 0.0;
        }
        if self.is_wholly_live() {
            return 1.0;
        }
        self.live_bytes as f64 / self.plain_bytes as f64
    }

    /// What copying its live chunks writes, about.
    #[must_use]
    pub fn live_bytes_stored(&self) -> u64 {
        if self.is_dead() {
            return 0;
        }
        if self.is_wholly_live() {
            return self.stored_bytes;
        }
        let product = u128::from(self.stored_bytes) * u128::from(self.live_bytes);
        let live = product.div_ceil(u128::from(self.plain_bytes).max(1));
        u64::try_from(live).unwrap_or(u64::MAX).min(self.stored_bytes)
    }

    /// What cleaning it frees, about.
    #[must_use]
    pub fn dead_bytes_stored(&self) -> u64 {
        self.stored_bytes - self.live_bytes_stored()
    }
}

/// How much is to be freed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SpaceGoal {
    /// Only what needs no copying.
    DeadOnly,
    /// So much that what is dead and stays is at most this share of what is live.
    Unused(f64),
    /// So many stored bytes.
    Free(u64),
    /// Whatever is dead.
    Everything,
}

impl Default for SpaceGoal {
    fn default() -> Self {
        Self::Unused(UNUSED_SHARE_DEFAULT)
    }
}

/// Containers of one class by live share, or what cleaning all of them would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassSummary {
    /// How many there are.
    pub containers: u64,
    /// Their size in the store.
    pub stored_bytes: u64,
    /// What cleaning all of them would free, about.
    pub dead_bytes_stored: u64,
}

/// Names of the classes in [`Selection::classes`].
pub const CLASS_NAMES: [&str; 5] = ["dead", "mostly dead", "half live", "mostly live", "live"];

/// Which containers are cleaned, and what all of them look like.
#[derive(Clone, PartialEq, Debug)]
pub struct Selection {
    /// The containers to clean, rising.
    pub condemned: Vec<ContainerId>,
    /// What cleaning them frees, about.
    pub dead_bytes_stored: u64,
    /// What must be copied for it, about.
    pub copied_bytes_stored: u64,
    /// Dead bytes that may come along with them without missing the goal, about.
    pub carried_dead_max_bytes: u64,
    /// The highest live share among the condemned; zero if nothing must be copied.
    pub threshold: f64,
    /// All containers by live share: none, below a quarter, up to three quarters, above, all.
    pub classes: [ClassSummary; 5],
    /// All containers by live share in tenths, rounded down; the last is wholly live (S3.46).
    pub histogram: [u32; 11],
}

/// Chooses the containers to clean for `goal`, copying at most `copy_bytes_max` stored bytes.
#[must_use]
pub fn select(
    containers: &[ContainerLiveness],
    goal: SpaceGoal,
    copy_bytes_max: Option<u64>,
) -> Selection {
    let mut selection = summarise(containers);
    let least = |fraction| match goal {
        SpaceGoal::Unused(share) => bytes_to_free(containers, SpaceGoal::Unused(share * fraction)),
        goal => bytes_to_free(containers, goal),
    };
    let (freed_least, condemned_least) = (least(LEFT_PART), least(1.0 - CARRIED_PART));
    let (dead, mut partly): (Vec<_>, Vec<_>) = containers
        .iter()
        .filter(|container| !container.is_wholly_live())
        .partition(|container| container.is_dead());
    for container in dead {
        selection.condemn(container);
    }
    if selection.dead_bytes_stored >= bytes_to_free(containers, goal) {
        partly.clear();
    }
    partly.sort_by(|one, other| {
        let by_share = one.live_share().total_cmp(&other.live_share());
        by_share.then(one.container.cmp(&other.container))
    });
    for container in partly {
        let copied = selection.copied_bytes_stored.saturating_add(container.live_bytes_stored());
        let freed = selection.dead_bytes_stored;
        let is_enough = freed >= condemned_least
            || freed >= freed_least && container.live_share() > CONDEMNED_TO_CARRY_SHARE_MAX;
        if is_enough || copy_bytes_max.is_some_and(|most| copied > most) {
            break;
        }
        selection.condemn(container);
    }
    selection.condemned.sort_unstable();
    if selection.copied_bytes_stored > 0 {
        selection.carried_dead_max_bytes = selection.dead_bytes_stored.saturating_sub(freed_least);
    }
    selection
}

impl Selection {
    /// Condemns more containers, which are to go for another reason than their space.
    pub fn also_condemn(
        &mut self,
        containers: &[ContainerLiveness],
        wanted: impl Fn(ContainerId) -> bool,
    ) {
        let chosen = std::mem::take(&mut self.condemned);
        let is_new = |one: &ContainerLiveness| {
            wanted(one.container) && chosen.binary_search(&one.container).is_err()
        };
        containers.iter().filter(|one| is_new(one)).for_each(|one| self.condemn(one));
        self.condemned.extend(chosen);
        self.condemned.sort_unstable();
    }

    fn condemn(&mut self, container: &ContainerLiveness) {
        self.condemned.push(container.container);
        add(&mut self.dead_bytes_stored, container.dead_bytes_stored());
        add(&mut self.copied_bytes_stored, container.live_bytes_stored());
        self.threshold = self.threshold.max(container.live_share());
    }
}

fn add(total: &mut u64, more: u64) {
    *total = total.saturating_add(more);
}

/// Every container counted, none condemned.
fn summarise(containers: &[ContainerLiveness]) -> Selection {
    let mut classes = [ClassSummary::default(); 5];
    let mut histogram = [0; 11];
    for container in containers {
        if let Some(class) = classes.get_mut(class_of(container)) {
            class.containers += 1;
            add(&mut class.stored_bytes, container.stored_bytes);
            add(&mut class.dead_bytes_stored, container.dead_bytes_stored());
        }
        let tenths = if container.is_wholly_live() {
            10
        } else {
            // A share just below one may be rounded to it; it is not wholly live all the same.
            ((container.live_share() * 10.0) as usize).min(9)
        };
        if let Some(count) = histogram.get_mut(tenths) {
            *count += 1;
        }
    }
    Selection {
        condemned: Vec::new(),
        dead_bytes_stored: 0,
        copied_bytes_stored: 0,
        carried_dead_max_bytes: 0,
        threshold: 0.0,
        classes,
        histogram,
    }
}

fn class_of(container: &ContainerLiveness) -> usize {
    if container.is_dead() {
        return 0;
    }
    if container.is_wholly_live() {
        return 4;
    }
    match container.live_share() {
        share if share < 0.25 => 1,
        share if share <= 0.75 => 2,
        _ => 3,
    }
}

/// How many stored bytes the goal wants freed, what costs nothing included.
fn bytes_to_free(containers: &[ContainerLiveness], goal: SpaceGoal) -> u64 {
    match goal {
        SpaceGoal::DeadOnly => 0,
        SpaceGoal::Free(bytes) => bytes,
        SpaceGoal::Everything => u64::MAX,
        SpaceGoal::Unused(share) => {
            let (mut live, mut dead) = (0, 0);
            for container in containers {
                add(&mut live, container.live_bytes_stored());
                add(&mut dead, container.dead_bytes_stored());
            }
            excess_bytes(dead, live, share)
        }
    }
}

/// How much more is dead than may be: so large a share of what is live.
#[must_use]
pub fn excess_bytes(dead_bytes: u64, live_bytes: u64, share: f64) -> u64 {
    // The conversion makes zero of shares that make no sense.
    dead_bytes.saturating_sub((live_bytes as f64 * share) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::duplicates::DuplicateCounters;
    use proptest::prelude::*;

    /// A container of 100 plain bytes in 50 stored ones, `live` of the plain ones live.
    fn container(number: u8, live: u64) -> ContainerLiveness {
        ContainerLiveness {
            container: ContainerId([number; 16]),
            stored_bytes: 50,
            plain_bytes: 100,
            live_bytes: live,
            chunks: 100,
            live_chunks: live as u32,
        }
    }

    fn condemned(selection: &Selection) -> Vec<u8> {
        selection.condemned.iter().map(|id| id.0[0]).collect()
    }

    fn store() -> Vec<ContainerLiveness> {
        [(9, 0), (1, 60), (2, 20), (3, 100), (4, 20), (5, 90), (6, 0), (7, 2)]
            .map(|(number, live)| container(number, live))
            .to_vec()
    }

    #[test]
    fn goals_choose_by_rising_live_share() {
        let cases = [
            (SpaceGoal::DeadOnly, vec![6, 9], 0.0),
            (SpaceGoal::Free(100), vec![6, 9], 0.0),
            (SpaceGoal::Free(101), vec![6, 7, 9], 0.02),
            (SpaceGoal::Free(150), vec![2, 6, 7, 9], 0.2),
            (SpaceGoal::Free(190), vec![2, 4, 6, 7, 9], 0.2),
            (SpaceGoal::Free(1 << 40), vec![1, 2, 4, 5, 6, 7, 9], 0.9),
            (SpaceGoal::Everything, vec![1, 2, 4, 5, 6, 7, 9], 0.9),
            // 146 live bytes stored, and 25 dead ones in what is not condemned: half of what may
            // stay at 34.4 %, and more than that at 32.8 %.
            (SpaceGoal::Unused(0.344), vec![2, 4, 6, 7, 9], 0.2),
            (SpaceGoal::Unused(0.328), vec![1, 2, 4, 6, 7, 9], 0.6),
            // The dead alone leave 154 of 160 bytes that may stay, and too many for 153.
            (SpaceGoal::Unused(1.1), vec![6, 9], 0.0),
            (SpaceGoal::Unused(1.05), vec![2, 6, 7, 9], 0.2),
            (SpaceGoal::Unused(100.0), vec![6, 9], 0.0),
            (SpaceGoal::Unused(f64::NAN), vec![1, 2, 4, 5, 6, 7, 9], 0.9),
            (SpaceGoal::Unused(-1.0), vec![1, 2, 4, 5, 6, 7, 9], 0.9),
        ];
        for (goal, expected, threshold) in cases {
            let selection = select(&store(), goal, None);
            assert_eq!(condemned(&selection), expected, "{goal:?}");
            assert_eq!(selection.threshold, threshold, "{goal:?}");
        }
        assert_eq!(SpaceGoal::default(), SpaceGoal::Unused(0.05));
    }

    #[test]
    fn what_the_goal_leaves_over_may_come_along() {
        let carried = |goal| select(&store(), goal, None).carried_dead_max_bytes;
        // 254 dead bytes stored, of which 229 and 249 are condemned, and nine tenths of 50 and 47
        // may stay.
        assert_eq!(carried(SpaceGoal::Unused(0.344)), 20);
        assert_eq!(carried(SpaceGoal::Unused(0.328)), 38);
        assert_eq!(carried(SpaceGoal::Free(180)), 9);
        assert_eq!(carried(SpaceGoal::Everything), 0);
        // Nothing is copied.
        assert_eq!(carried(SpaceGoal::DeadOnly), 0);
        assert_eq!(carried(SpaceGoal::Unused(100.0)), 0);
    }

    #[test]
    fn nothing_that_is_mostly_live_is_copied_so_that_others_can_be_carried() {
        // 665 bytes are live and 35 are dead; 29 may stay, and without the first container 20 do.
        let mut store: Vec<_> = (10..21).map(|number| container(number, 98)).collect();
        store.extend([container(1, 70), container(2, 84), container(3, 98)]);
        let chosen = |share| condemned(&select(&store, SpaceGoal::Unused(share), None));
        assert_eq!(chosen(0.045), [1]);
        assert_eq!(chosen(0.06), [] as [u8; 0]);
        // 19 may stay: the second one frees what the goal asks for.
        assert_eq!(chosen(0.03), [1, 2]);
    }

    #[test]
    fn what_is_just_as_live_as_may_be_makes_room_for_carrying() {
        assert_eq!(CONDEMNED_TO_CARRY_SHARE_MAX, 0.75);
        for (live, expected) in [(75, &[1, 2][..]), (76, &[1])] {
            let mut store: Vec<_> = (10..21).map(|number| container(number, 98)).collect();
            store.extend([container(1, 70), container(2, live), container(3, 98)]);
            assert_eq!(condemned(&select(&store, SpaceGoal::Unused(0.045), None)), expected);
        }
    }

    #[test]
    fn copying_stops_at_its_limit() {
        for (limit, expected) in
            [(0, vec![6, 9]), (1, vec![6, 7, 9]), (11, vec![2, 6, 7, 9]), (20, vec![2, 6, 7, 9])]
        {
            let selection = select(&store(), SpaceGoal::Everything, Some(limit));
            assert_eq!(condemned(&selection), expected, "{limit}");
            assert!(selection.copied_bytes_stored <= limit);
        }
    }

    #[test]
    fn classes_and_histogram_cover_every_container() {
        let selection = select(&store(), SpaceGoal::DeadOnly, None);
        assert_eq!(selection.classes.map(|class| class.containers), [2, 3, 1, 1, 1]);
        assert_eq!(selection.classes.map(|class| class.dead_bytes_stored), [100, 129, 20, 5, 0]);
        assert_eq!(selection.classes.map(|class| class.stored_bytes), [100, 150, 50, 50, 50]);
        assert_eq!(selection.histogram, [3, 0, 2, 0, 0, 0, 1, 0, 0, 1, 1]);
    }

    #[test]
    fn containers_that_make_no_sense_are_kept() {
        let empty = ContainerLiveness { plain_bytes: 0, chunks: 0, ..container(1, 0) };
        assert_eq!(condemned(&select(&[empty], SpaceGoal::DeadOnly, None)), [1]);
        let no_bytes = ContainerLiveness { live_chunks: 1, ..container(2, 0) };
        let no_chunks = ContainerLiveness { live_chunks: 0, ..container(3, 10) };
        let excess = ContainerLiveness { live_bytes: 200, ..container(4, 50) };
        let all = [no_bytes, no_chunks, excess];
        assert!(condemned(&select(&all, SpaceGoal::DeadOnly, None)).is_empty());
        assert!(!condemned(&select(&all, SpaceGoal::Everything, None)).contains(&4));
        assert_eq!(excess.dead_bytes_stored(), 0);
    }

    #[test]
    fn r19_counts_and_sums_beyond_32_and_64_bits_do_not_wrap() {
        let huge = ContainerLiveness {
            stored_bytes: u64::MAX,
            plain_bytes: u64::MAX,
            live_bytes: u64::MAX - 1,
            ..container(5, 99)
        };
        let selection = select(&[huge, huge], SpaceGoal::Everything, None);
        assert_eq!((selection.dead_bytes_stored, selection.histogram[9]), (2, 2));
        assert_eq!(selection.copied_bytes_stored, u64::MAX);
        // 2^33 bytes in each, and more chunks together than 32 bits count.
        let large = ContainerLiveness {
            stored_bytes: 1 << 33,
            plain_bytes: 1 << 34,
            live_bytes: 1 << 33,
            chunks: u32::MAX,
            live_chunks: u32::MAX / 2,
            ..container(1, 0)
        };
        let selection = select(&[large, large, large], SpaceGoal::Everything, None);
        assert_eq!(selection.dead_bytes_stored, 3 << 32);
        assert_eq!(selection.copied_bytes_stored, 3 << 32);
        let mut counters = DuplicateCounters::new(2).unwrap();
        counters.note_group(&[0, 1]).unwrap();
        for _ in 0..40 {
            counters.merge(&counters.clone()).unwrap();
        }
        assert_eq!((counters.superseded(0), counters.superseded(1)), (u32::MAX, 0));
    }

    fn any_container() -> impl Strategy<Value = (u64, u32, u32)> {
        (1..10_000_u64, 1..50_u32, 0..50_u32)
    }

    fn any_store(parts: &[(u64, u32, u32)]) -> Vec<ContainerLiveness> {
        let container = |(number, (stored_bytes, chunks, live)): (usize, &(u64, u32, u32))| {
            let live_chunks = (*live).min(*chunks);
            ContainerLiveness {
                container: ContainerId((number as u128).to_le_bytes()),
                stored_bytes: *stored_bytes,
                plain_bytes: u64::from(*chunks) * 7,
                live_bytes: u64::from(live_chunks) * 7,
                chunks: *chunks,
                live_chunks,
            }
        };
        parts.iter().enumerate().map(container).collect()
    }

    proptest! {
        #[test]
        fn the_goal_is_met_if_it_can_be_and_not_exceeded_by_a_container(
            parts in prop::collection::vec(any_container(), 0..40),
            wanted in 0..200_000_u64,
            limit in prop::option::of(0..100_000_u64),
        ) {
            let containers = any_store(&parts);
            let selection = select(&containers, SpaceGoal::Free(wanted), limit);
            let everything = select(&containers, SpaceGoal::Everything, None);
            prop_assert!(selection.condemned.is_sorted());
            let is_condemned =
                |one: &&ContainerLiveness| selection.condemned.contains(&one.container);
            let chosen: Vec<_> = containers.iter().filter(is_condemned).collect();
            let freed: u64 = chosen.iter().map(|one| one.dead_bytes_stored()).sum();
            let copied: u64 = chosen.iter().map(|one| one.live_bytes_stored()).sum();
            prop_assert_eq!(
                (freed, copied),
                (selection.dead_bytes_stored, selection.copied_bytes_stored)
            );
            prop_assert!(limit.is_none_or(|limit| copied <= limit));
            if limit.is_none() {
                prop_assert!(freed >= wanted.min(everything.dead_bytes_stored));
            }
            for one in &containers {
                let is_chosen = selection.condemned.contains(&one.container);
                prop_assert!(is_chosen || !one.is_dead());
                prop_assert!(!is_chosen || !one.is_wholly_live());
                // A prefix of the order: nothing less live was left out.
                prop_assert!(is_chosen || one.live_share() >= selection.threshold);
            }
            // Minimal: without the most live of the chosen, the goal would not be met.
            let last = chosen.iter().filter(|one| !one.is_dead()).max_by(|one, other| {
                let by_share = one.live_share().total_cmp(&other.live_share());
                by_share.then(one.container.cmp(&other.container))
            });
            if let Some(last) = last {
                prop_assert!(freed - last.dead_bytes_stored() < wanted);
            }
        }

        #[test]
        fn the_order_of_containers_does_not_matter(
            parts in prop::collection::vec(any_container(), 0..20),
            share in 0.0..1.0_f64,
        ) {
            let mut containers = any_store(&parts);
            let forwards = select(&containers, SpaceGoal::Unused(share), Some(5_000));
            containers.reverse();
            prop_assert_eq!(forwards, select(&containers, SpaceGoal::Unused(share), Some(5_000)));
        }
    }
}
