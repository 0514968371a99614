//! Where a function's code lies, how SAM is told to build it, and what was found out about both.
//! It looks for the folder of `sam build`, and reads no code.

use crate::{
    declarations::resource::Resource, diagnostic::Span, evaluation::properties::Properties,
    evaluation::value::Data, stack::Code, syntax::node::Kind,
};

/// Where `sam build` puts each function and layer, beside the template.
pub(crate) const BUILD_FOLDER: &str = ".aws-sam/build";

/// The folder of the code of a function that names none, as SAM takes it.
pub(crate) const DEFAULT_URI: &str = ".";

/// What was found out about a function's code.
pub(crate) enum Found {
    /// It runs here.
    Here {
        /// From what.
        code: Code,
        /// In which folder, relative to the template's, if that is not `CodeUri`.
        folder: Option<String>,
    },
    /// It does not.
    NotHere(NotHere),
}

/// Why a function does not run here.
pub(crate) struct NotHere {
    /// Where that is written.
    pub(crate) at: Span,
    pub(crate) reason: String,
    /// What to write instead, where it would not run on AWS either.
    pub(crate) help: Option<String>,
}

/// Where the code lies.
pub(crate) enum Uri {
    /// In a folder, relative to the template's.
    Folder(String),
    /// Where it is not read: in S3, or at a place that only AWS knows.
    Away(Span, &'static str),
    /// It is not said, or an error was reported.
    Unknown,
}

/// Finds where the code of a function lies.
pub(crate) fn uri(properties: &Properties<'_, '_>) -> Uri {
    let Some(node) = properties.node("CodeUri") else {
        let has_other = properties.has("InlineCode") || is_image(properties);
        return if has_other { Uri::Unknown } else { Uri::Folder(DEFAULT_URI.to_owned()) };
    };
    let in_s3 = "the function's code lies in S3";
    if matches!(node.kind, Kind::Map(_)) {
        return Uri::Away(node.at, in_s3);
    }
    match properties.value("CodeUri").map(|value| value.data) {
        Some(Data::Text(text)) if text.starts_with("s3://") => Uri::Away(node.at, in_s3),
        Some(Data::Text(text)) => Uri::Folder(text),
        Some(Data::Elsewhere(_)) => {
            Uri::Away(node.at, "where the function's code lies is known only on AWS")
        }
        _ => Uri::Unknown,
    }
}

/// How SAM is told to build the function, with its place.
pub(crate) fn method<'t>(resource: &Resource<'t>) -> Option<(Span, &'t str)> {
    let node = resource.node.get("Metadata")?.get("BuildMethod")?;
    Some((node.at, node.as_text()?))
}

/// The runtime, with its place.
pub(crate) fn runtime(properties: &Properties<'_, '_>) -> Option<(Span, String)> {
    let value = properties.value("Runtime")?;
    if let Data::Text(text) = value.data { Some((value.at, text)) } else { None }
}

/// Whether the function is a container image.
pub(crate) fn is_image(properties: &Properties<'_, '_>) -> bool {
    let is_said = match properties.value("PackageType").map(|value| value.data) {
        Some(Data::Text(kind)) => kind == "Image",
        _ => false,
    };
    is_said || properties.has("ImageUri") || properties.has("ImageConfig")
}

/// The folder that `sam build` has made for a resource, relative to the template's.
pub(crate) fn built(properties: &Properties<'_, '_>, id: &str) -> Option<String> {
    let root = properties.resolver.context.folder.as_ref()?;
    let folder = format!("{BUILD_FOLDER}/{id}");
    root.join(&folder).is_dir().then_some(folder)
}
