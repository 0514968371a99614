//! The local Lambda runtime: runs what a template describes on this machine, as AWS runs it.
//!
//! `system` starts all of it; `poller` carries out event source mappings over the Streams API;
//! `function` runs processes on the Lambda Runtime API; `object_store` is the S3 endpoint; `journal`
//! keeps what became of each record. It knows nothing of migrations, archives and counters.

pub mod function;
pub mod journal;
pub mod object_store;
pub mod poller;
pub mod system;
