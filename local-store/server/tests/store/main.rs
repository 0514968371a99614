//! Tests of the store through its public API.

#[cfg(test)]
mod documented;
#[cfg(test)]
mod hostile;
