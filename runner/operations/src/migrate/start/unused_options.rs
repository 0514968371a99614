//! Finds options of `weir migrate start` that have no effect, so that they are reported before the
//! start.

/// The facts about a start that decide whether options have an effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartFacts<'g> {
    /// The migration.
    pub(super) name: &'g str,
    /// True if the start is a dry run (`--dry-run`).
    pub(super) is_dry: bool,
    /// True if the migration was started before.
    pub(super) is_begun: bool,
    /// True if the control table exists, or is created without `--create-control-table`.
    pub(super) has_control_table: bool,
    /// True if `--create-control-table` was given.
    pub(super) creates_control_table: bool,
    /// True if `--with-lost-updates` was given.
    pub(super) accepts_lost_updates: bool,
    /// The value of `--rate`; 0 for no limit.
    pub(super) rate: u64,
    /// The value of `--local-workers`.
    pub(super) local_workers: usize,
    /// The names of local workers' options that differ from their defaults.
    pub(super) of_workers: &'g [&'static str],
}

/// Returns each option that has no effect, with the reason.
pub(super) fn of(given: StartFacts<'_>) -> Vec<(&'static str, String)> {
    let StartFacts { name, is_begun, rate, local_workers, of_workers, .. } = given;
    let mut unused = Vec::new();
    if given.is_dry {
        let why = "--dry-run starts nothing";
        let options = [
            ("--rate", rate != 0),
            ("--local-workers", local_workers != 0),
            ("--create-control-table", given.creates_control_table),
        ];
        let options = options.into_iter().filter(|(_, is_given)| *is_given);
        let options = options.map(|(option, _)| option).chain(of_workers.iter().copied());
        return options.map(|option| (option, why.to_owned())).collect();
    }
    if is_begun && rate != 0 {
        let throttle = format!("weir migrate throttle {name} --rate {rate}");
        unused.push((
            "--rate",
            format!("`{name}` is already started; `{throttle}` changes its rate"),
        ));
    }
    if is_begun && given.accepts_lost_updates {
        let why = format!("`{name}` is already started");
        unused.push(("--with-lost-updates", why));
    }
    if given.creates_control_table && given.has_control_table {
        let why = "the control table exists, or the local store creates it in any case";
        unused.push(("--create-control-table", why.to_owned()));
    }
    let of_workers = of_workers.iter().filter(|_| local_workers == 0);
    let why = "it applies only to the workers of --local-workers";
    unused.extend(of_workers.map(|option| (*option, why.to_owned())));
    unused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_without_effect_is_reported() {
        let both: &[&str] = &["--directory", "--package"];
        let none = StartFacts {
            name: "shop",
            is_dry: false,
            is_begun: false,
            has_control_table: false,
            creates_control_table: false,
            accepts_lost_updates: false,
            rate: 0,
            local_workers: 0,
            of_workers: &[],
        };
        let creates = StartFacts { creates_control_table: true, ..none };
        for (given, expected) in [
            (none, &[][..]),
            (StartFacts { is_begun: true, ..none }, &[]),
            (StartFacts { rate: 5, ..none }, &[]),
            (StartFacts { accepts_lost_updates: true, ..none }, &[]),
            (
                StartFacts { is_begun: true, accepts_lost_updates: true, ..none },
                &["--with-lost-updates"],
            ),
            (StartFacts { is_begun: true, rate: 5, ..none }, &["--rate"]),
            (
                StartFacts { is_begun: true, rate: 5, local_workers: 1, of_workers: both, ..none },
                &["--rate"],
            ),
            (StartFacts { local_workers: 1, of_workers: both, ..none }, &[]),
            (StartFacts { of_workers: both, ..none }, both),
            (creates, &[]),
            (StartFacts { has_control_table: true, ..creates }, &["--create-control-table"]),
            (
                StartFacts { is_dry: true, rate: 5, local_workers: 1, ..creates },
                &["--rate", "--local-workers", "--create-control-table"],
            ),
        ] {
            let options: Vec<&str> = of(given).into_iter().map(|(option, _)| option).collect();
            assert_eq!(options, expected, "{given:?}");
        }
    }
}
