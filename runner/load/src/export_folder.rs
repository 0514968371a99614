//! Reads the folder of a table's export to S3: its manifest and its data files.
//!
//! Layout: AWS DynamoDB guide, "DynamoDB table export output format".

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use serde::Deserialize;

use super::foreign;
use super::reading::Reading;
use client::failure::{Context, Result, fatal};

const FILES: &str = "manifest-files.json";
const SUMMARY: &str = "manifest-summary.json";
/// The folder under which DynamoDB writes exports to S3.
const PREFIX: &str = "AWSDynamoDB";

/// A line of `manifest-files.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DataFile {
    item_count: u64,
    md5_checksum: Option<String>,
    data_file_s3_key: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    output_format: Option<String>,
}

/// Writes the lines of all data files of an export, in the order of its manifest.
///
/// # Errors
/// When the folder has no export, or several; when the export is not in DynamoDB JSON; when a data
/// file is missing or differs from the manifest.
pub(super) fn write_lines(folder: &Path, into: &mut impl Write) -> Result<()> {
    let export = find(folder)?;
    check_format(&export)?;
    let manifest = export.join(FILES);
    let doing = || format!("cannot read `{}`", manifest.display());
    for line in BufReader::new(File::open(&manifest).context(doing)?).lines() {
        let line = line.context(doing)?;
        if line.trim().is_empty() {
            continue;
        }
        let file: DataFile = serde_json::from_str(&line).map_err(|error| {
            fatal!("`{}` is not an export manifest: {error}: {line}", manifest.display())
        })?;
        write_file(&export, &file, into)?;
    }
    Ok(())
}

/// Returns the folder with the manifest: `folder` itself, or the export folder below `AWSDynamoDB`.
fn find(folder: &Path) -> Result<PathBuf> {
    if folder.join(FILES).is_file() {
        return Ok(folder.to_owned());
    }
    let mut found = Vec::new();
    for parent in [folder.join(PREFIX), folder.to_owned()] {
        let entries = fs::read_dir(&parent).into_iter().flatten().flatten();
        let exports = entries.map(|entry| entry.path());
        found.extend(exports.filter(|path| path.join(FILES).is_file()));
    }
    found.sort();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(fatal!(
            "`{}` is a folder without `{FILES}`: name a file, or the folder of an export to S3 \
             with its manifests and its data files",
            folder.display()
        )),
        several => {
            let names: Vec<String> =
                several.iter().map(|path| format!("`{}`", path.display())).collect();
            Err(fatal!("the folder contains several exports; name one: {}", names.join(", ")))
        }
    }
}

fn check_format(export: &Path) -> Result<()> {
    // The summary is optional, because a partial copy of an export may lack it.
    let Ok(text) = fs::read_to_string(export.join(SUMMARY)) else { return Ok(()) };
    let summary: Summary = serde_json::from_str(&text)
        .map_err(|error| fatal!("cannot parse `{}`: {error}", export.join(SUMMARY).display()))?;
    match summary.output_format.as_deref() {
        None | Some("DYNAMODB_JSON") => Ok(()),
        Some(other) => Err(fatal!(
            "the export `{}` is in {other}: export the table again with `--export-format \
             DYNAMODB_JSON`",
            export.display()
        )),
    }
}

fn write_file(export: &Path, file: &DataFile, into: &mut impl Write) -> Result<()> {
    let name = file.data_file_s3_key.rsplit('/').next().unwrap_or_default();
    // Data files of incremental exports are next to the exports' folders, not in them.
    let folders = [Some(export), export.parent()].into_iter().flatten();
    let path = folders.map(|folder| folder.join("data").join(name)).find(|path| path.is_file());
    let path = path.ok_or_else(|| {
        fatal!("the data file `{name}` of the export `{}` is missing", export.display())
    })?;
    let shown = path.display();
    let doing = || format!("cannot read `{shown}`");
    let opened = Reading::open(&path).context(doing)?;
    if let Some(expected) = &file.md5_checksum {
        let mut sum = Md5::new();
        copy(&mut opened.rewound(), |part| {
            sum.update(part);
            Ok(())
        })
        .context(doing)?;
        if STANDARD.encode(sum.finalize()) != *expected {
            return Err(fatal!(
                "`{shown}` does not match its MD5 in the manifest: copy the file again"
            ));
        }
    }
    let mut content = match foreign::unpacked(&opened).context(doing)? {
        Some(unpacked) => unpacked,
        None => Box::new(opened.rewound()),
    };
    let (mut lines, mut last) = (0, b'\n');
    copy(&mut content, |part| {
        lines += part.iter().filter(|byte| **byte == b'\n').count() as u64;
        last = part.last().copied().unwrap_or(last);
        into.write_all(part)
    })
    .context(doing)?;
    if last != b'\n' {
        lines += 1;
        into.write_all(b"\n").context(doing)?;
    }
    if lines != file.item_count {
        let expected = file.item_count;
        return Err(fatal!(
            "`{shown}` has {lines} lines, but {expected} according to the manifest: copy the file again"
        ));
    }
    Ok(())
}

fn copy(
    from: &mut impl Read,
    mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut part = vec![0; 64 * 1024];
    loop {
        let read = match from.read(&mut part) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        take(part.get(..read).unwrap_or_default())?;
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// Writes an export below `place`, with a single data file that has this text.
    fn export(root: &Path, place: &str, manifest: &str, text: &str) {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        let sum = STANDARD.encode(Md5::digest(&packed));
        fs::create_dir_all(root.join("AWSDynamoDB/01-a")).unwrap();
        fs::create_dir_all(root.join(place)).unwrap();
        fs::write(root.join(place).join("x.json.gz"), packed).unwrap();
        let manifest = manifest.replace("SUM", &sum);
        fs::write(root.join("AWSDynamoDB/01-a/manifest-files.json"), manifest).unwrap();
    }

    fn lines(folder: &Path) -> Result<String> {
        let mut lines = Vec::new();
        write_lines(folder, &mut lines).map(|()| String::from_utf8(lines).unwrap())
    }

    #[test]
    fn the_data_files_of_the_manifest_are_read() {
        let manifest = r#"{"itemCount":2,"md5Checksum":"SUM","dataFileS3Key":"AWSDynamoDB/01-a/data/x.json.gz"}"#;
        for place in ["AWSDynamoDB/01-a/data", "AWSDynamoDB/data"] {
            let root = tempfile::tempdir().unwrap();
            export(root.path(), place, manifest, "{\"Item\":1}\n{\"Item\":2}");
            let expected = Ok("{\"Item\":1}\n{\"Item\":2}\n".to_owned());
            assert_eq!(lines(root.path()), expected, "{place}");
            assert_eq!(lines(&root.path().join("AWSDynamoDB/01-a")), expected, "{place}");
            assert_eq!(lines(&root.path().join("AWSDynamoDB")), expected, "{place}");
        }
    }

    #[test]
    fn an_export_that_is_not_whole_is_refused() {
        let key = r#""dataFileS3Key":"AWSDynamoDB/01-a/data/"#;
        for (manifest, reason) in [
            (
                format!(r#"{{"itemCount":1,"md5Checksum":"SUM",{key}x.json.gz"}}"#),
                "has 2 lines, but 1 according to the manifest",
            ),
            (
                format!(r#"{{"itemCount":2,"md5Checksum":"AA==",{key}x.json.gz"}}"#),
                "does not match its MD5 in the manifest",
            ),
            (format!(r#"{{"itemCount":2,{key}y.json.gz"}}"#), "the data file `y.json.gz`"),
            ("[]".to_owned(), "is not an export manifest"),
        ] {
            let root = tempfile::tempdir().unwrap();
            export(root.path(), "AWSDynamoDB/01-a/data", &manifest, "{}\n{}\n");
            let refused = lines(root.path()).unwrap_err().to_string();
            assert!(refused.contains(reason), "{manifest}: {refused}");
        }
        let root = tempfile::tempdir().unwrap();
        assert!(
            lines(root.path()).unwrap_err().to_string().contains("without `manifest-files.json`")
        );
        export(root.path(), "AWSDynamoDB/01-a/data", "", "");
        let summary = root.path().join("AWSDynamoDB/01-a/manifest-summary.json");
        fs::write(summary, r#"{"outputFormat":"ION"}"#).unwrap();
        assert!(
            lines(root.path()).unwrap_err().to_string().contains("--export-format DYNAMODB_JSON")
        );
    }
}
