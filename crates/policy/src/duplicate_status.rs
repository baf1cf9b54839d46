//! Whether a chunk is a duplicate, and of what: the outcome of look-up, the input of rewriting.

/// The duplicate status of a chunk of the stream.
///
/// `Instances` is what is known of its copies in old containers, `Fresh` of the one that this
/// session has stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DuplicateStatus<Instances, Fresh = ()> {
    /// New: the store does not hold it, and it goes into the open container.
    Unique,
    /// In a container that this session is writing or has written: never stored again, and costs no
    /// read of an old container. So is a chunk whose rewriting is decided.
    Fresh(Fresh),
    /// In old containers.
    Old(Instances),
}
