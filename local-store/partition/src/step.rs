//! How much one step of work in the background takes on, so that no entry takes long to apply and no
//! batch becomes too large.

use std::ops::ControlFlow;

use crate::storage::{Overlay, ReadError, View, end_of_prefix};

/// Bytes that a step reads at most, and some more for the last thing that it reads: about ten items of
/// the largest size.
pub(crate) const STEP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a step may still take on.
#[derive(Debug)]
pub(crate) struct Allowance {
    entries: usize,
    bytes: usize,
}

impl Allowance {
    /// So many entries, and [`STEP_BYTES_MAX`] of them.
    pub(crate) fn of_entries(entries: usize) -> Self {
        Self { entries, bytes: STEP_BYTES_MAX }
    }

    /// Takes an entry on. Breaks behind the last one that there is room for.
    pub(crate) fn take(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(key.len() + value.len());
        if self.is_used_up() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Whether the step is to end, and another one to go on.
    pub(crate) fn is_used_up(&self) -> bool {
        self.entries == 0 || self.bytes == 0
    }
}

/// Removes the next entries whose keys begin with a prefix, as many as there is room for.
pub(crate) fn remove_under(
    overlay: &mut Overlay<'_>,
    prefix: &[u8],
    left: &mut Allowance,
) -> Result<(), ReadError> {
    let mut keys = Vec::new();
    overlay.scan(prefix, &end_of_prefix(prefix), false, &mut |key, value| {
        keys.push(key.to_vec());
        left.take(key, value)
    })?;
    keys.into_iter().for_each(|key| overlay.delete(key));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_behind_so_many_entries_or_bytes() {
        let mut few = Allowance::of_entries(2);
        assert!(few.take(b"k", b"").is_continue() && !few.is_used_up());
        assert!(few.take(b"k", b"").is_break() && few.is_used_up());
        let mut large = Allowance::of_entries(100);
        let half = vec![0; STEP_BYTES_MAX / 2 - 1];
        assert!(large.take(b"k", &half).is_continue());
        assert!(large.take(b"", &half).is_continue(), "a byte is left");
        assert!(large.take(b"", &half).is_break() && large.is_used_up());
    }
}
