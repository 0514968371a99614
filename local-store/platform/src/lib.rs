//! What a process asks of its operating system: files that the user alone can read, and a budget of
//! file descriptors.

pub mod descriptors;
pub mod private_files;
