//! HTML components that several pages use. They perform no I/O.

pub(crate) mod cell;
pub(crate) mod form;
pub(crate) mod keys;
pub(crate) mod message;
pub(crate) mod preview;
pub(crate) mod table;
pub(crate) mod time;
