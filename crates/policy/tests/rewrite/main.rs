//! Which duplicates are stored again, and what that gains: by hand, at random, and over versions.

mod accounts;
mod choice;
mod examples;
mod invariants;
mod limits;
mod model;
mod rules;
mod spending;
mod support;
mod versions;
