//! What commands open stores for.

/// What a command does with the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It only reads: a store that cannot be written will do.
    Read,
    /// It writes.
    Write,
}

/// What another store is opened for, beside the one that a command is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtherStore {
    /// Snapshots are copied into it; the own one is only read.
    CopyTo,
    /// What the own one has lost is read from it.
    HealFrom,
}

impl OtherStore {
    /// What is done with the own store, and what with the other one.
    pub fn accesses(self) -> (Access, Access) {
        match self {
            Self::CopyTo => (Access::Read, Access::Write),
            Self::HealFrom => (Access::Write, Access::Read),
        }
    }

    /// What it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::CopyTo => "the store to copy to",
            Self::HealFrom => "the store to heal from",
        }
    }

    /// What to do if it is none.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::CopyTo => "; 'onefold init' makes stores",
            Self::HealFrom => "",
        }
    }
}
