//! Recognises files that are not UTF-8 text. Unpacks files compressed with gzip or zstd, and
//! rejects other formats with advice.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use super::reading::Reading;
use client::failure::{Context, Result, fatal};

/// Number of leading bytes by which the format of a file is recognised.
const BEGINNING_BYTES: usize = 8;

/// The leading bytes of a format, its name, and the advice for the user.
const FOREIGN: &[(&[u8], &str, &str)] = &[
    (&[0xff, 0xfe], "UTF-16", "convert it to UTF-8, in PowerShell with `Out-File -Encoding utf8`"),
    (&[0xfe, 0xff], "UTF-16", "convert it to UTF-8, for example with `iconv -f UTF-16 -t UTF-8`"),
    (&[0xe0, 0x01, 0x00, 0xea], "Amazon Ion", ION_HELP),
    (b"$ion_1_0", "Amazon Ion", ION_HELP),
    (b"PAR1\x15", "Parquet", "export its rows as NDJSON or CSV"),
    (b"PK\x03\x04", "a zip archive or an Excel workbook", "unpack it, or save the sheet as CSV"),
    (b"BZh9", "compressed with bzip2", "pipe the output of `bunzip2 -c FILE` into `weir load -`"),
    (b"\xfd7zXZ", "compressed with xz", "pipe the output of `xz -dc FILE` into `weir load -`"),
    (b"SQLite f", "an SQLite database", "export its rows as CSV"),
];

const ION_HELP: &str = "export the table again with `--export-format DYNAMODB_JSON`";

fn beginning(file: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = u64::try_from(BEGINNING_BYTES).unwrap_or(u64::MAX);
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns a decompressing reader; `None` if the file is not compressed with gzip or zstd.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn unpacked(file: &Reading) -> std::io::Result<Option<Box<dyn Read>>> {
    let bytes = beginning(&mut file.rewound())?;
    Ok(if bytes.starts_with(&[0x1f, 0x8b]) {
        Some(Box::new(MultiGzDecoder::new(file.rewound())))
    } else if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Some(Box::new(zstd::stream::read::Decoder::new(file.rewound())?))
    } else {
        None
    })
}

/// Checks that a file does not have one of the unsupported formats.
///
/// # Errors
/// The file has an unsupported format, or cannot be read. The message names the format and how to
/// convert the file.
pub(super) fn check(name: &str, file: &Reading) -> Result<()> {
    let bytes = beginning(&mut file.rewound());
    let bytes = bytes.context(|| format!("cannot read `{name}`"))?;
    match FOREIGN.iter().find(|(start, ..)| bytes.starts_with(start)) {
        Some((_, what, help)) => Err(fatal!("`{name}` is {what}: {help}")),
        None => Ok(()),
    }
}
