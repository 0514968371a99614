//! An empty library. The end-to-end tests of Weir are next to this file.
