//! The end-to-end tests of Weir are next to this file; the library itself is empty.
