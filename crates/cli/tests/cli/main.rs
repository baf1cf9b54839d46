//! The program as its users meet it: the real binary, in directories of its own.
//!
//! | module | about |
//! | --- | --- |
//! | [`first_use`] | the way from an empty directory to restored files |
//! | [`exit_codes`] | what scripts may rely on |
//! | [`bounds`] | options without sense or bound, signals, output that nobody takes |
//! | [`checking`] | what a check says of damage, and how samples go round |
//! | [`json`] | what programs may rely on |
//! | [`estimating`] | what sharing a directory would give |
//! | [`sources`] | missing sources, lists, patterns, the store among them |
//! | [`readable`] | leases, attributes, dead mounts, patterns of any bytes, deep trees |
//! | [`words`] | files that could not be read, or changed |
//! | [`clocks`] | snapshots whose dates cannot be right |
//! | [`streams`] | standard input and commands |
//! | [`forgetting`] | policies, refusals, and the way back |
//! | [`profiles`] | the configuration file and the environment |
//! | [`fixtures`] | whole stores that were written once |
//! | [`full_devices`] | real file systems without a byte left |
//! | [`buckets`] | a store in a bucket, by a real server where there is one |
//! | [`serving`], [`serving_requests`], [`serving_bounds`], [`serving_ways`] | a store that a server of our own serves: what its clients may, and what it takes |
//! | [`machines`] | a store on another machine, by a real server where there is one |
//! | [`places`] | where a store may be, and what is restored around it |
//! | [`references`] | names of snapshots |
//! | [`restoring`] | what is there already, and what is selected |
//! | [`taking_away`] | what restores and dumps take away of what is there |
//! | [`hostile`] | stores that somebody else can write to |
//! | [`planted`] | something planted under every name of a store |
//! | [`newer`] | records of a newer version |
//! | [`remedies`] | what messages tell the user to do, done |
//! | [`dead_ends`] | damage that is over, as collections meet it |
//! | [`keys`] | keys that are rotated |
//! | [`mounting`] | snapshots as a directory |
//! | [`terminal`] | what is asked and shown there |
//! | [`late_errors`] | file systems that tell of errors late, or of others than there are |
//! | [`local_cache`] | what a machine keeps of a store that is elsewhere |
//! | [`looking`] | ls, find, diff, dump, cat, stats |

mod bounds;
mod buckets;
mod checking;
mod clocks;
mod collecting;
mod copying;
mod databases;
mod dead_ends;
mod estimating;
mod exit_codes;
mod first_use;
mod fixtures;
mod folding;
mod forgetting;
mod full_devices;
mod healing;
mod holding;
mod hostile;
mod json;
mod keys;
mod late_errors;
mod local_cache;
mod looking;
mod losses;
mod machines;
mod mounted;
mod mounting;
mod naming;
mod nested;
mod newer;
mod open_files;
mod places;
mod planted;
mod presets;
mod profiles;
mod readable;
mod references;
mod remedies;
mod restoring;
mod restoring_attributes;
mod restoring_folded;
mod restoring_in_place;
mod serving;
mod serving_audit;
mod serving_bounds;
mod serving_requests;
mod serving_together;
mod serving_ways;
mod sharing;
mod sharing_below;
mod sharing_calls;
mod sharing_copied;
mod sharing_covered;
mod sharing_damage;
mod sharing_full;
mod sharing_guarded;
mod sharing_jobs;
mod sharing_kept;
mod sharing_lost;
mod sharing_own;
mod sharing_pages;
mod sharing_random;
mod sharing_replaced;
mod sharing_restored;
mod sharing_semantics;
mod sharing_shown;
mod sharing_tools;
mod sharing_torn;
mod sharing_users;
mod sources;
mod streams;
mod support;
mod switches;
mod taking_away;
mod terminal;
mod words;
