//! Reports options of `weir migrate start` that have no effect on the migration, before the start.

/// The facts about a start on which the check depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartFacts<'g> {
    /// The migration.
    pub(super) name: &'g str,
    /// Whether the migration was started before.
    pub(super) is_begun: bool,
    /// The value of `--rate`; 0 for no limit.
    pub(super) rate: u64,
    /// The value of `--local-workers`.
    pub(super) local_workers: usize,
    /// The names of local workers' options that differ from their defaults.
    pub(super) of_workers: &'g [&'static str],
}

/// Returns a line for each option without effect.
pub(super) fn lines(given: StartFacts<'_>) -> Vec<String> {
    let StartFacts { name, is_begun, rate, local_workers, of_workers } = given;
    let of_rate = (is_begun && rate != 0).then(|| {
        format!(
            "warning: --rate has no effect: `{name}` is already started; `weir migrate throttle {name} --rate {rate}` changes its rate"
        )
    });
    let of_workers = of_workers.iter().filter(|_| local_workers == 0).map(|option| {
        format!(
            "warning: {option} has no effect: it applies only to the workers of --local-workers"
        )
    });
    of_rate.into_iter().chain(of_workers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_without_effect_is_reported() {
        let both: &[&str] = &["--directory", "--package"];
        for (is_begun, rate, local_workers, of_workers, expected) in [
            (true, 0, 0, [].as_slice(), [].as_slice()),
            (false, 5, 0, &[], &[]),
            (true, 5, 0, &[], &["--rate"]),
            (true, 5, 1, both, &["--rate"]),
            (false, 0, 1, both, &[]),
            (false, 0, 0, both, both),
        ] {
            let given = StartFacts { name: "shop", is_begun, rate, local_workers, of_workers };
            let lines = lines(given);
            let options: Vec<_> =
                lines.iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
            assert_eq!(options, expected, "{given:?}");
        }
    }
}
