//! Operating system services: files that only the user can read, a budget of file descriptors, and the
//! end of the process that started this one.

pub mod descriptors;
pub mod private_files;
pub mod standard_input;
