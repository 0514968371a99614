//! Runtimes for which Lambda rejects new functions.
//!
//! Source: AWS Lambda guide, "Lambda runtimes", deprecated runtimes, as of November 2026.

use crate::{
    declarations::resource::Resource, evaluation::resolver::Resolver, evaluation::value::Data,
};

/// The runtimes, the date since which Lambda rejects new functions, and the successors of the
/// runtimes.
const BLOCKED: &[(&str, &str, &str)] = &[
    ("dotnetcore1.0", "2019-06-30", "dotnet10"),
    ("dotnetcore2.0", "2019-04-30", "dotnet10"),
    ("dotnetcore2.1", "2022-01-05", "dotnet10"),
    ("dotnetcore3.1", "2023-04-03", "dotnet10"),
    ("go1.x", "2024-02-08", "provided.al2023"),
    ("java8", "2024-02-08", "java25"),
    ("nodejs", "2016-09-30", "nodejs24.x"),
    ("nodejs10.x", "2021-07-30", "nodejs24.x"),
    ("nodejs12.x", "2023-03-31", "nodejs24.x"),
    ("nodejs14.x", "2024-01-09", "nodejs24.x"),
    ("nodejs4.3", "2020-02-03", "nodejs24.x"),
    ("nodejs4.3-edge", "2019-03-31", "nodejs24.x"),
    ("nodejs6.10", "2019-07-12", "nodejs24.x"),
    ("nodejs8.10", "2020-02-04", "nodejs24.x"),
    ("provided", "2024-02-08", "provided.al2023"),
    ("python2.7", "2021-07-15", "python3.14"),
    ("python3.6", "2022-07-18", "python3.14"),
    ("python3.7", "2024-01-09", "python3.14"),
    ("ruby2.5", "2021-07-30", "ruby4.0"),
    ("ruby2.7", "2024-01-09", "ruby4.0"),
];

/// Reports a deprecated runtime for which Lambda rejects new functions.
pub(crate) fn check(resolver: &Resolver<'_>, function: &Resource<'_>) {
    if !matches!(function.type_name, "AWS::Serverless::Function" | "AWS::Lambda::Function") {
        return;
    }
    let Some(node) = function.properties.get("Runtime") else { return };
    let Some(Some(node)) = resolver.choose(node) else { return };
    let Some(value) = resolver.resolve(node) else { return };
    let Data::Text(runtime) = value.data else { return };
    if let Some((_, since, successor)) = BLOCKED.iter().find(|(name, ..)| *name == runtime) {
        resolver.findings.error(
            node.at,
            format!("Lambda has rejected new functions with the runtime `{runtime}` since {since}"),
            format!("write `{successor}`"),
        );
    }
}
