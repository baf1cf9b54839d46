//! The laboratory: the product's own policies and index, driven by traces, on modelled devices.
//!
//! | module | holds |
//! | --- | --- |
//! | [`trace`] | what a store is asked to do: generations of streams, chunk by chunk |
//! | [`source`] | traces out of directories, parameters and `.hash.anon` files |
//! | [`crawl`] | writes such files from a directory; analyses them |
//! | [`simulation`] | a store without bytes: the real policies, the real index |
//! | `single` | chunks without bytes, for the product's machine of a stream |
//! | [`rewriting`] | rewriting and restoring on modelled containers |
//! | [`collection`] | whole collections and restores of real stores in memory, on modelled devices
//! |
//! | [`product`] | whole stores in a directory of this machine, used as the program uses them |
//! | [`primary`] | files in use: estimated, divided, indexed, reconciled |
//! | [`device`] | latencies, measured or published, and the virtual clock |
//! | [`latency`] | any store on a modelled device, on a virtual clock |
//! | [`workload`], [`experiment`] | the papers' claims, run again |
//! | [`index_memory`] | the memory of a large index, by the process |
//! | [`locality`] | whether duplicates come again next to what they stood next to before |
//! | [`replay`] | somebody's own trace, with every strategy |
//! | [`points`] | a plot out of lines that a script measured |
//! | [`report`] | Markdown, CSV, SVG |

#![forbid(unsafe_code)]

pub mod collection;
pub mod crawl;
pub mod device;
pub mod experiment;
pub mod index_memory;
pub mod latency;
pub mod locality;
pub mod parallel;
pub mod points;
pub mod primary;
pub mod product;
pub mod replay;
pub mod report;
pub mod rewriting;
pub mod simulation;
mod single;
pub mod source;
pub mod trace;
pub mod workload;
