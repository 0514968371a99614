//! The causes of an error. An error of the SDK or of hyper names only its own layer; the innermost cause
//! has the actual reason.

use std::error::Error;

/// Maximum number of causes that are read from an error chain, which usually has about five.
const CAUSES_MAX: usize = 32;

/// Returns an error and its causes, outermost first.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> + 'a {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
        .take(CAUSES_MAX)
}

/// Returns the innermost cause.
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}
