//! What is allowed and probably not meant, and what is not carried out here.
//! It refuses nothing.

pub(crate) mod elsewhere;
pub(crate) mod grants;
pub(crate) mod lint;
