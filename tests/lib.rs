//! End-to-end tests of Weir live beside this file; the library itself is empty on purpose.
