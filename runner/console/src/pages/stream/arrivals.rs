//! Decides how an open page shows new records. For a few new records the page is reloaded; for
//! many, it shows only their number.

/// The maximum number of new records for which the page is reloaded. A reload reads the stream, so
/// a fast stream must not trigger reloads.
const RELOADED_MAX: u64 = 100;

/// The minimum number of samples between two events, which take two seconds.
const SAMPLES_PER_LOAD: u32 = 4;

/// The numbers of records that mappings have read, for one open page.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// The number of read records when the page was last loaded.
    shown: Option<u64>,
    /// The number of read records when the last event was sent.
    told: u64,
    /// The number of samples since the last event.
    quiet: u32,
}

/// An event for the page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The page must be reloaded.
    Load,
    /// The number of new records since the page was loaded.
    Many(u64),
}

impl Arrivals {
    /// Adds a sample of the number of read records, and returns the event for the page, if any.
    pub(crate) fn sample(&mut self, read: u64) -> Option<Arrived> {
        let shown = *self.shown.get_or_insert(read);
        // The number restarts from 0 when `weir up` restarts.
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
        // `weir up` was restarted.
        assert_eq!(events(&[3; 4]), [Arrived::Load]);
    }
}
