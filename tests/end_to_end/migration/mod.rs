//! Tests of migrations with the real binaries, with faults from outside.

mod clock_leaps;
mod cost;
pub(crate) mod driver;
mod in_place;
mod incomplete_streams;
mod meter;
mod misspelt_names;
mod purge;
mod rate;
mod repairs;
mod switching;
mod throttling_and_hooks;
mod value_copies;
mod whole;
