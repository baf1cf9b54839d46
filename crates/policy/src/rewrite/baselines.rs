//! Policies of the papers that a backup takes only if it is told to by name: restored with forward
//! assembly, none of them was ahead of `combined`, the default, on any load that was measured; with
//! ALACC LBW is, by up to 4 % (`experiments/restore/rewrite-grid`).
//!
//! | module | policy | after |
//! | --- | --- | --- |
//! | `capping` | a segment refers to the containers that it uses most | FAST'13; FAST'19, section
//! 2.2 |
//! | `flexible` | a segment refers to containers it uses often enough (FCRC) | FAST'19, section 3.2
//! |
//! | `history` | what the previous version used sparsely is stored again (HAR) | ATC'14 |
//! | `look_back_window` | a sliding window refers to containers it uses often enough (LBW) |
//! FAST'19, sections 4 and 5 |
//!
//! `segment` holds what capping and flexible judge together.

pub(super) mod capping;
pub(super) mod flexible;
pub(super) mod history;
pub(super) mod look_back_window;
pub(super) mod segment;
