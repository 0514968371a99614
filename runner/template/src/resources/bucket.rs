//! Parses S3 buckets: `AWS::S3::Bucket`.

use crate::{
    declarations::resource::Resource,
    evaluation::properties::{Catalogue, Properties},
    stack::Bucket,
};

const NOT_EMULATED: Catalogue = &[
    ("AbacStatus", "permissions are not checked"),
    ("AccelerateConfiguration", "there is only one endpoint"),
    ("AccessControl", "permissions are not checked"),
    ("AnalyticsConfigurations", "no analytics are collected"),
    ("BucketEncryption", "objects are plain files"),
    ("BucketNamePrefix", "the bucket's name is derived from its logical id"),
    ("BucketNamespace", "the bucket's name is derived from its logical id"),
    ("CorsConfiguration", "no CORS headers are sent"),
    ("IntelligentTieringConfigurations", "there is only one storage class"),
    ("InventoryConfigurations", "no inventory is written"),
    ("LifecycleConfiguration", "objects stay until they are deleted"),
    ("LoggingConfiguration", "no access log is written"),
    ("MetadataConfiguration", "no metadata tables are written"),
    ("MetadataTableConfiguration", "no metadata tables are written"),
    ("MetricsConfigurations", "no metrics are collected"),
    ("NotificationConfiguration", "no notification is sent"),
    ("ObjectLockConfiguration", "objects can be deleted"),
    ("ObjectLockEnabled", "objects can be deleted"),
    ("OwnershipControls", "permissions are not checked"),
    ("PublicAccessBlockConfiguration", "the endpoint listens on this machine only"),
    ("ReplicationConfiguration", "objects are not copied elsewhere"),
    ("Tags", "the bucket has no tags"),
    ("VersioningConfiguration", "only the latest version of an object is stored"),
    ("WebsiteConfiguration", "no website is served"),
];

/// Parses one bucket; `None` if an error was reported.
pub(crate) fn read(properties: &Properties<'_, '_>, resource: &Resource<'_>) -> Option<Bucket> {
    let at = properties.node("BucketName").map_or(resource.at, |node| node.at);
    let name = properties.resolver.name_text(resource, at);
    properties.finish(NOT_EMULATED);
    let name = name?;
    // S3's general rules for bucket names. On this machine, the name is also the name of a folder.
    let allowed = |letter: char| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '-' | '.')
    };
    let ends = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    let is_name = (3..=63).contains(&name.len())
        && name.chars().all(allowed)
        && ends(name.chars().next())
        && ends(name.chars().last())
        && !name.contains("..");
    if !is_name {
        properties.resolver.findings.error(
            at,
            format!("`{name}` is not a valid bucket name"),
            "write 3 to 63 small letters, digits or hyphens, beginning and ending with a letter \
            or a digit",
        );
        return None;
    }
    Some(Bucket { logical_id: resource.id.to_owned(), name, at: resource.at })
}
