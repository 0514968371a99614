//! Tests of the binary.

#[cfg(test)]
mod damage;
