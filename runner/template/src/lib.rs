//! Parses a SAM or CloudFormation template and returns a [`Stack`], which contains the evaluated
//! values that the local runner needs.
//!
//! The caller passes the text of the template. The crate executes no program. It reads only files
//! below the template's folder that show how a function is built.
//!
//! Parsing has three passes. A pass runs only if the previous pass found no error:
//!
//! 1. `syntax`: parses the text into a tree. Each node has its location in the text.
//! 2. `declarations`: checks that every referenced name exists, including names in resources that
//!    are not emulated and in untaken branches.
//! 3. `resources`: evaluates (module `evaluation`) and checks (module `checks`) the properties that
//!    the runner uses. All other resources and properties are listed as not emulated.

mod checks;
mod context;
mod declarations;
pub mod diagnostic;
mod evaluation;
mod not_emulated;
mod resources;
pub mod schedule_expression;
mod span;
mod stack;
mod syntax;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use crate::context::Context;
pub use crate::not_emulated::NotEmulated;
pub use crate::resources::function::RESERVED_VARIABLES;
pub use crate::resources::{binary, entrypoint, sources};
pub use crate::syntax::document;
use crate::{
    checks::{elsewhere, grants, lint},
    declarations::{
        globals, references,
        resource::{self, Resource, ResourceKind},
    },
    diagnostic::Findings,
    evaluation::{parameters, properties::Properties, resolver::Resolver},
    resources::{
        bucket, code, event, function,
        origin::{Found, NotRunHere},
        runtimes, table,
    },
    syntax::faults,
};
pub use crate::{
    diagnostic::{Diagnostic, Diagnostics, Severity, Span},
    resources::binary::Wanted,
    stack::{
        Absent, AttributeDefinition, BOOTSTRAP, Billing, Bucket, Code, Destination,
        EventSourceMapping, FilterPattern, Function, Index, IndexKind, KeyType, Language, Layer,
        LogFormat, Logging, NotRun, Projection, Schedule, Script, Stack, StartingPosition,
        StreamSource, StreamViewType, Table,
    },
};

/// Parses a template of at most 1,000,000 bytes. `file` is its name in diagnostics.
///
/// # Errors
///
/// Returns all errors and warnings, ordered by line, if the template has an error.
pub fn read_bytes(file: &str, bytes: &[u8], context: &Context) -> Result<Stack, Diagnostics> {
    match std::str::from_utf8(bytes) {
        Ok(text) => read(file, text, context),
        Err(error) => Err(faults::not_utf8(file, bytes, error.valid_up_to())),
    }
}

/// Parses the text of a template. `file` is its name in diagnostics.
///
/// # Errors
/// Returns all errors and warnings, ordered by line, if the template has an error.
pub fn read(file: &str, text: &str, context: &Context) -> Result<Stack, Diagnostics> {
    // Editors on Windows may write a byte order mark at the start of a file.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let findings = Findings::new(file, text);
    let stack = read_stack(text, context, &findings);
    let failed = findings.has_errors();
    let (diagnostics, not_emulated) = findings.into_parts();
    match stack {
        Some(stack) if !failed => Ok(Stack { not_emulated, warnings: diagnostics.shown, ..stack }),
        _ => Err(diagnostics),
    }
}

/// Runs the three passes. Returns `None` if an error was reported.
fn read_stack(text: &str, context: &Context, findings: &Findings<'_>) -> Option<Stack> {
    let root = document::parse(text, findings)?;
    if findings.has_errors() {
        return None;
    }
    let with_globals = globals::check(root.get("Globals"), findings);
    let parameters = parameters::read(root.get("Parameters"), &context.parameters, findings);
    let resources = resource::read(&root, with_globals, findings);
    references::check(&root, &resources, findings);
    if findings.has_errors() {
        return None;
    }
    let resolver = Resolver::new(findings, context, parameters, &root, &resources);
    Some(Reading { resolver: &resolver, existing: existing(&resolver, &resources) }.stack())
}

/// Returns the resources that exist because they have no condition or their condition is true.
fn existing<'a>(resolver: &Resolver<'_>, resources: &'a [Resource<'a>]) -> Vec<&'a Resource<'a>> {
    resources.iter().filter(|resource| resolver.exists(resource) == Some(true)).collect()
}

/// Removes the resources that do not run on this machine from the stack. They were parsed only to
/// find errors.
fn take_out_what_does_not_run(stack: &mut Stack) {
    let mut not_run = std::mem::take(&mut stack.not_run);
    for entry in not_run.iter_mut().filter(|entry| entry.what == Absent::Mapping) {
        let read = stack.mappings.iter().find(|found| found.logical_id == entry.resource);
        entry.stream = read.map(|found| found.stream.clone());
    }
    let runs = |what: Absent, id: &str| {
        !not_run.iter().any(|entry| entry.what == what && entry.resource == id)
    };
    stack.functions.retain(|found| runs(Absent::Function, &found.logical_id));
    stack.mappings.retain(|found| runs(Absent::Mapping, &found.logical_id));
    stack.schedules.retain(|found| runs(Absent::Schedule, &found.logical_id));
    stack.not_run = not_run;
}

/// The inputs of the third pass, which reads the resources.
struct Reading<'a, 't> {
    resolver: &'a Resolver<'t>,
    existing: Vec<&'a Resource<'a>>,
}

impl<'a> Reading<'a, '_> {
    fn stack(&self) -> Stack {
        let context = self.resolver.context;
        let findings = self.resolver.findings;
        for resource in &self.existing {
            lint::check_accepted(resource, findings);
            elsewhere::list_attributes(resource, findings);
            runtimes::check(self.resolver, resource);
            if resource.kind == ResourceKind::Other {
                elsewhere::list_resource(resource, findings);
            }
        }
        let mut stack = Stack {
            name: context.stack_name.clone(),
            region: context.region.clone(),
            account_id: context.account_id.clone(),
            tables: Vec::new(),
            buckets: Vec::new(),
            functions: Vec::new(),
            mappings: Vec::new(),
            schedules: Vec::new(),
            written_tables: BTreeMap::new(),
            not_emulated: Vec::new(),
            not_run: Vec::new(),
            warnings: Vec::new(),
        };
        for resource in self.of_kind(ResourceKind::is_table) {
            let read = table::read(&self.properties(resource), resource);
            if read.is_none() && !findings.has_errors() {
                let reason = "the table's key is known only on AWS, so the table is not created";
                elsewhere::list(resource, String::new(), resource.at, reason, findings);
            }
            stack.tables.extend(read);
        }
        for resource in self.of_kind(|kind| kind == ResourceKind::Bucket) {
            stack.buckets.extend(bucket::read(&self.properties(resource), resource));
        }
        self.functions(&mut stack);
        for resource in self.of_kind(|kind| kind == ResourceKind::Mapping) {
            event::read_mapping_resource(&self.properties(resource), resource, &mut stack);
        }
        self.check_names(&stack);
        self.check_mapped_once(&stack);
        self.check_destinations(&stack);
        lint::check_stack(self.resolver, &stack);
        take_out_what_does_not_run(&mut stack);
        stack
    }

    /// Reads the functions with their events. Functions that do not run on this machine are also
    /// read, because AWS would report their errors.
    fn functions(&self, stack: &mut Stack) {
        let findings = self.resolver.findings;
        for resource in self.of_kind(|kind| kind == ResourceKind::Function) {
            let properties = self.properties(resource);
            let written = grants::written_tables(self.resolver, resource);
            stack.written_tables.insert(resource.id.to_owned(), written);
            let (code, folder, is_absent) = match code::find(&properties, resource) {
                Some(Found::Here { code, folder }) => (code, folder, false),
                // The code has an error. The other properties are still read, to find their errors.
                None => (Code::Elsewhere, None, false),
                Some(Found::NotHere(NotRunHere { at, reason, help })) => {
                    elsewhere::list(resource, String::new(), resource.at, &reason, findings);
                    self.not_run(resource, at, reason, help, stack);
                    (Code::Elsewhere, None, true)
                }
            };
            let read = || {
                stack.functions.extend(function::read(&properties, resource, code, folder));
                event::read(&properties, resource, stack);
            };
            if is_absent { findings.of_what_does_not_run(read) } else { read() }
        }
        for resource in &self.existing {
            // An `AWS::Lambda::Function` does not describe how the function is built.
            if resource.type_name == "AWS::Lambda::Function" {
                let reason = "only functions of type `AWS::Serverless::Function` are built and run"
                    .to_owned();
                let help = "declare the function as `AWS::Serverless::Function`; accept `not-run-here` on it if it runs on AWS only";
                self.not_run(resource, resource.at, reason, Some(help.to_owned()), stack);
            }
        }
    }

    /// Warns about a function that does not run on this machine. Records the function with its
    /// mappings and schedules.
    fn not_run(
        &self,
        resource: &'a Resource<'a>,
        at: Span,
        reason: String,
        help: Option<String>,
        stack: &mut Stack,
    ) {
        let (properties, id) = (self.properties(resource), resource.id);
        let message = format!("`{id}` does not run here: {reason}");
        let help = help.unwrap_or_else(|| {
            "another runtime can run this function, for example `sam local start-lambda`, with `weir up \
             --invoke-url http://127.0.0.1:3001`; accept `not-run-here` on it if it runs on AWS \
             only"
                .to_owned()
        });
        lint::warn(&properties, lint::NOT_RUN_HERE, at, message, help);
        let accepted = lint::accepts(resource.node, lint::NOT_RUN_HERE);
        let (resource, function) = (id.to_owned(), id.to_owned());
        let what = Absent::Function;
        let not_run = NotRun { what, resource, function, stream: None, reason, accepted, at };
        event::note_not_run(&properties, &not_run, stack);
        stack.not_run.push(not_run);
    }

    fn of_kind(
        &self,
        is_kind: impl Fn(ResourceKind) -> bool,
    ) -> impl Iterator<Item = &'a Resource<'a>> {
        self.existing.iter().copied().filter(move |resource| is_kind(resource.kind))
    }

    fn properties(&self, resource: &'a Resource<'a>) -> Properties<'a, '_> {
        let Resource { id, at, type_name, properties, .. } = resource;
        Properties::new(self.resolver, id, type_name, *at, properties)
    }

    /// Reports an error if resources of the same type have the same name.
    fn check_names(&self, stack: &Stack) {
        let named = |kind: &'static str, names: Vec<(&str, Span)>| {
            let mut seen = BTreeSet::new();
            for (name, at) in names {
                if !seen.insert(name) {
                    self.resolver.findings.error(
                        at,
                        format!("there are two {kind} with the name `{name}`"),
                        "rename one of them",
                    );
                }
            }
        };
        let tables = stack.tables.iter().map(|table| (table.name.as_str(), table.at));
        let buckets = stack.buckets.iter().map(|bucket| (bucket.name.as_str(), bucket.at));
        let functions = stack.functions.iter().map(|found| (found.name.as_str(), found.at));
        named("tables", tables.collect());
        named("buckets", buckets.collect());
        named("functions", functions.collect());
    }

    /// Reports an error for a second mapping from a stream to the same function. Lambda rejects the
    /// second mapping with 409 `ResourceConflictException`, even if one of the mappings is
    /// disabled.
    fn check_mapped_once(&self, stack: &Stack) {
        for (at, mapping) in stack.mappings.iter().enumerate() {
            let EventSourceMapping { function, qualifier, stream, .. } = mapping;
            let link = (function, qualifier, stream);
            let earlier = stack.mappings.iter().take(at);
            let first = earlier
                .map(|other| (other, (&other.function, &other.qualifier, &other.stream)))
                .find(|(_, other)| *other == link);
            let Some((first, _)) = first else { continue };
            let stream = match stream {
                StreamSource::StreamOf(table) => format!("the stream of `{table}`"),
                StreamSource::Arn(arn) => format!("`{arn}`"),
            };
            self.resolver.findings.error(
                mapping.at,
                format!(
                    "`{function}` already reads {stream}, through the mapping `{}` in line {}: Lambda rejects a second mapping (409 ResourceConflictException)",
                    first.logical_id, first.at.line
                ),
                "merge the filters of both into one FilterCriteria, which matches every record that matches one of them; or use a different function",
            );
        }
    }

    /// Warns about a destination bucket that is not in this template, because it does not exist on
    /// this machine.
    fn check_destinations(&self, stack: &Stack) {
        for mapping in &stack.mappings {
            if let Some(Destination::Bucket(name)) = &mapping.on_failure
                && !stack.buckets.iter().any(|bucket| bucket.name == *name)
            {
                self.resolver.findings.warning(
                    mapping.at,
                    format!("the destination bucket `{name}` is not in this template"),
                    "add an AWS::S3::Bucket and write `!GetAtt Bucket.Arn`; until then a discarded \
                    batch is only logged",
                );
            }
        }
    }
}
