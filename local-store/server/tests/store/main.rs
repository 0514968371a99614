//! Tests of the store through its API, from outside of the crate.

#[cfg(test)]
mod damage;
#[cfg(test)]
mod documented;
#[cfg(test)]
mod hostile;
