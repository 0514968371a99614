//! Tests of the expression language from outside: recorded answers, properties, hostile texts.

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod partiql;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod recorded;
