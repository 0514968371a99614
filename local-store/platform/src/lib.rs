//! Operating system services: files that only the user can read, budgets of file descriptors and
//! threads, and detection of the end of the parent process.

pub mod descriptors;
pub mod private_files;
pub mod standard_input;
pub mod threads;
