//! Operating system services: files that only the user can read, and a budget of file descriptors.

pub mod descriptors;
pub mod private_files;
