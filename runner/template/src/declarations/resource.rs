//! The resources of a template before evaluation: their logical ids, types, and properties merged
//! with SAM's globals.

use crate::{
    declarations::globals,
    diagnostic::{Findings, Span, listed, similar},
    evaluation::value,
    syntax::intrinsic::Intrinsic,
    syntax::node::{Entry, Kind, Node},
};

/// CloudFormation's maximum number of resources in one template.
const RESOURCES_MAX: usize = 500;

/// The kinds of resources that the runner distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    /// `AWS::DynamoDB::Table`
    Table,
    /// `AWS::DynamoDB::GlobalTable`
    GlobalTable,
    /// `AWS::Serverless::SimpleTable`
    SimpleTable,
    /// `AWS::S3::Bucket`
    Bucket,
    /// `AWS::Serverless::Function`
    Function,
    /// `AWS::Lambda::EventSourceMapping`
    Mapping,
    /// Any type that is not emulated.
    Other,
}

/// The resource types that the runner emulates.
const MADE_HERE: &[(&str, ResourceKind)] = &[
    ("AWS::DynamoDB::Table", ResourceKind::Table),
    ("AWS::DynamoDB::GlobalTable", ResourceKind::GlobalTable),
    ("AWS::Serverless::SimpleTable", ResourceKind::SimpleTable),
    ("AWS::S3::Bucket", ResourceKind::Bucket),
    ("AWS::Serverless::Function", ResourceKind::Function),
    ("AWS::Lambda::EventSourceMapping", ResourceKind::Mapping),
];

impl ResourceKind {
    fn of(type_name: &str) -> ResourceKind {
        let made = MADE_HERE.iter().find(|(name, _)| *name == type_name);
        made.map_or(ResourceKind::Other, |(_, kind)| *kind)
    }

    /// Returns true for a DynamoDB table.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, ResourceKind::Table | ResourceKind::GlobalTable | ResourceKind::SimpleTable)
    }

    /// Returns the property that determines the value of `Ref`; `None` if this value is known only
    /// on AWS.
    pub(crate) fn name_property(self) -> Option<&'static str> {
        match self {
            ResourceKind::Table | ResourceKind::GlobalTable | ResourceKind::SimpleTable => {
                Some("TableName")
            }
            ResourceKind::Bucket => Some("BucketName"),
            ResourceKind::Function => Some("FunctionName"),
            ResourceKind::Mapping | ResourceKind::Other => None,
        }
    }

    /// Returns the attributes that `Fn::GetAtt` accepts; `None` if Weir does not know the
    /// attributes of the type.
    pub(crate) fn attributes(self) -> Option<&'static [&'static str]> {
        match self {
            ResourceKind::Table | ResourceKind::SimpleTable => Some(&["Arn", "StreamArn"]),
            ResourceKind::GlobalTable => Some(&["Arn", "StreamArn", "TableId"]),
            ResourceKind::Bucket => Some(&[
                "Arn",
                "DomainName",
                "DualStackDomainName",
                "RegionalDomainName",
                "WebsiteURL",
            ]),
            ResourceKind::Function => Some(&[
                "Arn",
                "SnapStartResponse",
                "SnapStartResponse.ApplyOn",
                "SnapStartResponse.OptimizationStatus",
            ]),
            ResourceKind::Mapping => Some(&["EventSourceMappingArn", "Id"]),
            ResourceKind::Other => None,
        }
    }
}

/// A resource of the template.
#[derive(Clone, Debug)]
pub(crate) struct Resource<'t> {
    pub(crate) id: &'t str,
    pub(crate) at: Span,
    pub(crate) type_name: &'t str,
    pub(crate) kind: ResourceKind,
    /// The node of the entire resource, including `Type`, `Properties` and `Metadata`.
    pub(crate) node: &'t Node,
    /// The properties, merged with SAM's globals.
    pub(crate) properties: Node,
}

impl Resource<'_> {
    /// Returns the name of the resource on this machine if the template does not specify one.
    ///
    /// AWS generates a name from the stack's name and a random suffix. Weir uses the logical id,
    /// which is easier to type; a bucket's name is in lower case. A name that is too short gets the
    /// stack's name as a prefix. A name that is too long is shortened.
    pub(crate) fn default_name(&self, stack: &str) -> String {
        let (name, longest) = match self.kind {
            ResourceKind::Bucket => (kebab_case(self.id), BUCKET_NAME_MAX),
            ResourceKind::Function => return shortened(self.id.to_owned(), FUNCTION_NAME_MAX),
            _ => (self.id.to_owned(), self.id.len()),
        };
        match name.len() < NAME_MIN {
            true => format!("{stack}-{name}"),
            false => shortened(name, longest),
        }
    }
}

/// Minimum length of the name of a table or bucket.
const NAME_MIN: usize = 3;

/// Maximum length of the name of a bucket or function.
const BUCKET_NAME_MAX: usize = 63;
const FUNCTION_NAME_MAX: usize = 64;

/// Shortens a name to at most `longest` letters. A shortened name ends with a hash of the full
/// name, so that names with the same beginning remain different.
fn shortened(name: String, longest: usize) -> String {
    if name.len() <= longest {
        return name;
    }
    // FNV-1a gives the same hash in every build of the program.
    let step = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let sum = format!("-{:08x}", name.bytes().fold(0x811c_9dc5, step));
    let kept: String = name.chars().take(longest.saturating_sub(sum.len())).collect();
    format!("{}{sum}", kept.trim_end_matches('-'))
}

/// Converts `FanOutFunction` to `fan-out-function`.
pub(crate) fn kebab_case(id: &str) -> String {
    let mut name = String::with_capacity(id.len() + 4);
    let mut previous_is_small = false;
    for letter in id.chars() {
        if letter.is_ascii_uppercase() && previous_is_small {
            name.push('-');
        }
        previous_is_small = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Reads the section `Resources` of a template.
pub(crate) fn read<'t>(
    root: &'t Node,
    with_globals: bool,
    findings: &Findings<'_>,
) -> Vec<Resource<'t>> {
    let Some(section) = root.get("Resources") else {
        findings.error(
            root.at,
            "this template has no `Resources`",
            "write `Resources:` with at least one resource",
        );
        return Vec::new();
    };
    let entries = section.entries();
    if entries.is_empty() && !findings.is_open() {
        findings.error(
            section.at,
            match section.description() {
                "a mapping" => "`Resources` is empty".to_owned(),
                other => format!("`Resources` must be a mapping, not {other}"),
            },
            "write logical ids below it, each with a `Type`",
        );
    }
    if entries.len() > RESOURCES_MAX {
        findings.error(
            section.at,
            format!(
                "this template has {} resources; CloudFormation allows at most {RESOURCES_MAX}",
                entries.len()
            ),
            "split it into several stacks",
        );
        return Vec::new();
    }
    let globals = if with_globals { root.get("Globals") } else { None };
    entries.iter().filter_map(|entry| read_one(entry, globals, findings)).collect()
}

fn read_one<'t>(
    entry: &'t Entry,
    globals: Option<&Node>,
    findings: &Findings<'_>,
) -> Option<Resource<'t>> {
    let id = entry.key.as_str();
    if !id.chars().all(|letter| letter.is_ascii_alphanumeric()) || id.is_empty() || id.len() > 255 {
        findings.error(
            entry.key_at,
            format!("`{id}` is not a valid logical id"),
            "write letters and digits only, at most 255",
        );
    }
    if matches!(entry.value.kind, Kind::Call(Intrinsic::Transform, _)) {
        // A resource with an unknown type was already reported.
        return None;
    }
    let Kind::Map(attributes) = &entry.value.kind else {
        findings.error(
            entry.value.at,
            format!("the resource `{id}` must be a mapping, not {}", entry.value.description()),
            "write `Type:` and `Properties:` below it",
        );
        return None;
    };
    for attribute in attributes {
        check_attribute(attribute, findings);
    }
    let Some(type_node) = entry.value.get("Type") else {
        findings.error(
            entry.key_at,
            format!("the resource `{id}` has no `Type`"),
            "write a type such as `Type: AWS::DynamoDB::Table`",
        );
        return None;
    };
    let type_name = value::literal(type_node, "Type", findings)?;
    check_type(type_name, type_node.at, findings);
    let empty = Node { at: entry.key_at, kind: Kind::Map(Vec::new()) };
    let is_known = |node: &&Node| !matches!(node.kind, Kind::Call(Intrinsic::Transform, _));
    let local = entry.value.get("Properties").filter(is_known).unwrap_or(&empty);
    if !matches!(local.kind, Kind::Map(_)) {
        findings.error(
            local.at,
            format!("`Properties` must be a mapping, not {}", local.description()),
            "write one property per line, each with a colon",
        );
        return None;
    }
    let properties = match globals::section(globals, type_name) {
        Some(global) => {
            globals::merge(&globals::without_ignored(global, &entry.value, findings), local)
        }
        None => local.clone(),
    };
    Some(Resource {
        id,
        at: entry.key_at,
        type_name,
        kind: ResourceKind::of(type_name),
        node: &entry.value,
        properties,
    })
}

/// Warns about a type that is probably a misspelling of an emulated type. CloudFormation would
/// reject the type. It is not an error in Weir, because this crate does not know every AWS type.
fn check_type(type_name: &str, at: Span, findings: &Findings<'_>) {
    let distance = |known: &&str| strsim::osa_distance(known, type_name);
    let nearest = MADE_HERE.iter().map(|(name, _)| *name).min_by_key(distance);
    let meant = nearest.filter(|known| (1..=TYPE_SLIPS_MAX).contains(&distance(known)));
    if let Some(meant) = meant {
        findings.warning(
            at,
            format!("unknown type `{type_name}`: this resource is not created"),
            format!("write `{meant}`"),
        );
    }
}

/// Maximum number of letters that differ between a misspelt type and the emulated type.
const TYPE_SLIPS_MAX: usize = 2;

/// The attributes that are allowed in any resource.
const ATTRIBUTES: &[&str] = &[
    "Condition",
    "Connectors",
    "CreationPolicy",
    "DeletionPolicy",
    "DependsOn",
    "Description",
    "IgnoreGlobals",
    "Metadata",
    "Properties",
    "Type",
    "UpdatePolicy",
    "UpdateReplacePolicy",
];

fn check_attribute(attribute: &Entry, findings: &Findings<'_>) {
    let name = attribute.key.as_str();
    if ATTRIBUTES.contains(&name) {
        return;
    }
    let help = match similar(name, ATTRIBUTES.iter().copied()) {
        Some(meant) => format!("write `{meant}`"),
        None => format!(
            "move `{name}` below `Properties:`, or write {}",
            listed(ATTRIBUTES.iter().copied())
        ),
    };
    findings.error(
        attribute.key_at,
        format!("`{name}` is not allowed next to the `Type` of a resource"),
        help,
    );
}

#[cfg(test)]
mod tests {
    use super::kebab_case;

    #[test]
    fn names_are_cut_at_their_capitals() {
        let cases = [
            ("ArchiveBucket", "archive-bucket"),
            ("FanOut", "fan-out"),
            ("S3Bucket", "s3-bucket"),
            ("DLQBucket", "dlqbucket"),
            ("plain", "plain"),
        ];
        for (id, expected) in cases {
            assert_eq!(kebab_case(id), expected);
        }
    }
}
