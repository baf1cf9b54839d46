//! What look-up strategies answer and what they cost, against a naive oracle that counts.

mod auto;
mod cost_model;
mod eager;
mod lazy;
mod parameters;
mod sampled;
mod support;
