//! The local Lambda runtime: runs the resources of a template on this machine as AWS does.
//!
//! `system` starts everything. `poller` runs event source mappings over the Streams API. `function` runs
//! processes on the Lambda Runtime API. `object_store` is the S3 endpoint. `journal` stores the history of
//! each record. `status` and `explain` report what happened, and `redrive` repeats deliveries, for
//! commands and for the console. Migrations, archives and counters are in other crates.

pub mod explain;
pub mod function;
pub mod journal;
pub mod object_store;
pub mod poller;
pub mod redrive;
pub mod status;
pub mod system;
