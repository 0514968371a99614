//! What a process asks of its operating system: files that the user alone can read, a budget of file
//! descriptors, and whether the process that started it is still there.

pub mod descriptors;
pub mod private_files;
pub mod standard_input;
