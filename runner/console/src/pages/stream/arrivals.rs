//! Decides when an open page is loaded again: at once while records come one by one. While they come fast, the page
//! shows their number.

/// The number of new records up to which the page is loaded again. A reload reads the stream, so a
/// fast stream must not trigger one.
const RELOADED_MAX: u64 = 100;

/// The number of samples between two loads: two seconds.
const SAMPLES_PER_LOAD: u32 = 4;

/// The records that the mappings have read, as the open page knows it.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// The count when the page was loaded.
    shown: Option<u64>,
    /// The count when the last event was sent.
    told: u64,
    /// The samples since the last event.
    quiet: u32,
}

/// An event for the page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The page is to be loaded again.
    Load,
    /// So many records came since the page was loaded.
    Many(u64),
}

impl Arrivals {
    /// Takes a sample of the number of records that were read.
    pub(crate) fn sample(&mut self, read: u64) -> Option<Arrived> {
        let shown = *self.shown.get_or_insert(read);
        // The count begins again with `weir up`.
        let new = read.checked_sub(shown).unwrap_or(read);
        self.quiet = self.quiet.saturating_add(1);
        if read == shown || read == self.told || self.quiet < SAMPLES_PER_LOAD {
            return None;
        }
        (self.told, self.quiet) = (read, 0);
        if new > RELOADED_MAX {
            return Some(Arrived::Many(new));
        }
        self.shown = Some(read);
        Some(Arrived::Load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_stream_never_loads_the_page() {
        let mut arrivals = Arrivals::default();
        let mut events = |counts: &[u64]| -> Vec<Arrived> {
            counts.iter().filter_map(|count| arrivals.sample(*count)).collect()
        };
        assert_eq!(events(&[7, 7, 7, 7, 7]), []);
        assert_eq!(events(&[8, 8, 8, 8]), [Arrived::Load]);
        assert_eq!(events(&[9, 10, 11]), [Arrived::Load]);
        assert_eq!(events(&[5_000, 10_000, 15_000, 20_000]), [Arrived::Many(9_991)]);
        assert_eq!(events(&[20_000; 9]), [Arrived::Many(19_991)]);
        // `weir up` was started again.
        assert_eq!(events(&[3; 4]), [Arrived::Load]);
    }
}
