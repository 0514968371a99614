//! The location of a function's code, and SAM's build method for the code. This module checks if
//! the folder of `sam build` exists, but does not read code.

use crate::{
    declarations::resource::Resource, diagnostic::Span, evaluation::properties::Properties,
    evaluation::value::Data, stack::Code, syntax::node::Kind,
};

/// The folder next to the template with the results of `sam build`. It contains one folder for each
/// function and layer.
pub(crate) const BUILD_FOLDER: &str = ".aws-sam/build";

/// SAM's default for the folder of a function's code.
pub(crate) const DEFAULT_URI: &str = ".";

/// The result of the search for a function's code.
pub(crate) enum Found {
    /// The function runs on this machine.
    Here {
        /// The program.
        code: Code,
        /// The folder of the code, relative to the template's folder; `None` if it is the folder in
        /// `CodeUri`.
        folder: Option<String>,
    },
    /// The function does not run on this machine.
    NotHere(NotRunHere),
}

/// The reason why a function does not run on this machine.
pub(crate) struct NotRunHere {
    /// The location of the setting that prevents the function from running on this machine.
    pub(crate) at: Span,
    pub(crate) reason: String,
    /// Advice on what to write instead; only if the function would not run on AWS either.
    pub(crate) help: Option<String>,
}

/// The location of a function's code.
pub(crate) enum Uri {
    /// A folder, relative to the template's folder.
    Folder(String),
    /// A location that is not read, with the reason: it is in S3, or known only on AWS.
    NotRead(Span, &'static str),
    /// The template does not specify the location, or an error was reported.
    Unknown,
}

/// Returns the location of a function's code.
pub(crate) fn uri(properties: &Properties<'_, '_>) -> Uri {
    let Some(node) = properties.node("CodeUri") else {
        let has_other = properties.has("InlineCode") || is_image(properties);
        return if has_other { Uri::Unknown } else { Uri::Folder(DEFAULT_URI.to_owned()) };
    };
    let in_s3 = "the function's code is in S3";
    if matches!(node.kind, Kind::Map(_)) {
        return Uri::NotRead(node.at, in_s3);
    }
    match properties.value("CodeUri").map(|value| value.data) {
        Some(Data::Text(text)) if text.starts_with("s3://") => Uri::NotRead(node.at, in_s3),
        Some(Data::Text(text)) => Uri::Folder(text),
        Some(Data::Elsewhere(_)) => {
            Uri::NotRead(node.at, "the location of the function's code is known only on AWS")
        }
        _ => Uri::Unknown,
    }
}

/// Returns SAM's build method for the function, with its location; `None` if the template does not
/// specify one.
pub(crate) fn method<'t>(resource: &Resource<'t>) -> Option<(Span, &'t str)> {
    let node = resource.node.get("Metadata")?.get("BuildMethod")?;
    Some((node.at, node.as_text()?))
}

/// Returns the function's runtime, with its location.
pub(crate) fn runtime(properties: &Properties<'_, '_>) -> Option<(Span, String)> {
    let value = properties.value("Runtime")?;
    if let Data::Text(text) = value.data { Some((value.at, text)) } else { None }
}

/// Returns true if the function is a container image.
pub(crate) fn is_image(properties: &Properties<'_, '_>) -> bool {
    let is_said = match properties.value("PackageType").map(|value| value.data) {
        Some(Data::Text(kind)) => kind == "Image",
        _ => false,
    };
    is_said || properties.has("ImageUri") || properties.has("ImageConfig")
}

/// Returns the folder that `sam build` created for a resource, relative to the template's folder;
/// `None` if it does not exist.
pub(crate) fn built(properties: &Properties<'_, '_>, id: &str) -> Option<String> {
    let root = properties.resolver.context.folder.as_ref()?;
    let folder = format!("{BUILD_FOLDER}/{id}");
    root.join(&folder).is_dir().then_some(folder)
}
