//! What restore engines plan: the reads of recipes worked out by hand, what holds for every recipe,
//! and the memory that it takes.

mod by_hand;
mod properties;
mod support;
mod text;
