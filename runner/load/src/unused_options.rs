//! Reports options of `weir load` that have no effect on this file or table, before anything is
//! loaded.

use aws_sdk_dynamodb::Client;

use super::arguments::{Format, LoadArguments};
use client::output::no_effect;
use client::table_description::ttl_attribute;

/// Warns about each option that has no effect.
pub(super) async fn report(arguments: &LoadArguments, format: Format, client: &Client) {
    for (option, reason) in of_file(arguments, format) {
        no_effect(option, reason);
    }
    let Some(attribute) = &arguments.ttl_attribute else { return };
    let table = &arguments.table;
    // A store that cannot describe its TTL can still load the file.
    let Ok(found) = ttl_attribute(client, table).await else { return };
    let reason = match found {
        Some(found) if found == *attribute => return,
        Some(found) => format!("the TTL of `{table}` uses `{found}`, not `{attribute}`"),
        None => format!("the TTL of `{table}` is off, so nothing expires"),
    };
    no_effect("--expires-in", &reason);
}

/// Returns the options that have no effect on a file of this format, and why.
fn of_file(arguments: &LoadArguments, format: Format) -> Vec<(&'static str, &'static str)> {
    let of_csv = [
        ("--types", !arguments.types.is_empty()),
        ("--null", arguments.null.is_some()),
        ("--separator", arguments.separator.is_some()),
    ];
    let unused = of_csv.into_iter().filter(|(_, is_given)| *is_given && format != Format::Csv);
    unused.map(|(option, _)| (option, "it applies to CSV only: JSON values have types")).collect()
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn csv_options_have_no_effect_on_json() {
        let command = <LoadArguments as clap::Args>::augment_args(clap::Command::new("load"));
        let flags = [
            "load",
            "--table",
            "t",
            "--types",
            "a:N",
            "--null",
            "NULL",
            "--separator",
            "^",
            "m.json",
        ];
        let matches = command.try_get_matches_from(flags).unwrap();
        let arguments = LoadArguments::from_arg_matches(&matches).unwrap();
        let options = |format| -> Vec<&str> {
            of_file(&arguments, format).into_iter().map(|(option, _)| option).collect()
        };
        assert_eq!(options(Format::Csv), Vec::<&str>::new());
        for format in [Format::Json, Format::Ndjson, Format::DynamodbJson] {
            assert_eq!(options(format), ["--types", "--null", "--separator"]);
        }
    }
}
