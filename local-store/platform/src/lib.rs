//! Operating system services: files that only the user can read, a budget of file descriptors, and
//! detection of the end of the parent process.

pub mod descriptors;
pub mod private_files;
pub mod standard_input;
