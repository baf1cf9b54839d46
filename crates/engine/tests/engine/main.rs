//! Integration tests of the engine: one binary, one module per subject.

mod bounds;
mod check;
mod check_index;
mod collection_partitioned;
mod exhausted;
mod faults;
mod giving_up;
mod hard_ends;
mod index;
mod index_cost;
mod index_damage;
mod ingest;
mod look_up;
mod lost;
mod only_hidden;
mod placement;
mod read_back;
mod renewal;
mod restore;
mod rewriting;
mod rewriting_amounts;
mod roundtrip;
mod scattered;
mod steps;
mod synthesis;
mod walks;
