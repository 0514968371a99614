//! Computes the checksums of an object's content while the content arrives, and compares them with the
//! checksums in the request.
//!
//! This module does not store the checksums.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderMap;
use s3s::{
    checksum::ChecksumHasher,
    crypto::{Checksum as _, Md5},
};
use serde::{Deserialize, Serialize};

use super::Error;

/// The checksum algorithms of S3. Source: Amazon S3 user guide, "Checking object integrity".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64nvme,
    Sha1,
    Sha256,
}

/// The algorithm, its header, and its name in `x-amz-sdk-checksum-algorithm`.
const ALGORITHMS: [(Algorithm, &str, &str); 5] = [
    (Algorithm::Crc32, "x-amz-checksum-crc32", "CRC32"),
    (Algorithm::Crc32c, "x-amz-checksum-crc32c", "CRC32C"),
    (Algorithm::Crc64nvme, "x-amz-checksum-crc64nvme", "CRC64NVME"),
    (Algorithm::Sha1, "x-amz-checksum-sha1", "SHA1"),
    (Algorithm::Sha256, "x-amz-checksum-sha256", "SHA256"),
];

/// Base64 checksums by algorithm, in S3's format.
pub(super) type Checksums = BTreeMap<Algorithm, String>;

/// Copies checksums into the five checksum fields of S3's responses.
macro_rules! set_checksums {
    ($output:expr, $checksums:expr) => {{
        use $crate::object_store::checksum::Algorithm;
        let checksums: &$crate::object_store::checksum::Checksums = $checksums;
        $output.checksum_crc32 = checksums.get(&Algorithm::Crc32).cloned();
        $output.checksum_crc32c = checksums.get(&Algorithm::Crc32c).cloned();
        $output.checksum_crc64nvme = checksums.get(&Algorithm::Crc64nvme).cloned();
        $output.checksum_sha1 = checksums.get(&Algorithm::Sha1).cloned();
        $output.checksum_sha256 = checksums.get(&Algorithm::Sha256).cloned();
    }};
}
pub(super) use set_checksums;

/// The checksums that a request claims for its content.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Claims {
    md5: Option<String>,
    sums: Checksums,
    /// The algorithms whose checksums are computed and stored. The request may lack the value, or send
    /// it in a trailer.
    algorithms: BTreeSet<Algorithm>,
}

impl Claims {
    /// Returns the checksums that the headers of a request claim.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let trailer = text("x-amz-trailer").unwrap_or_default().to_ascii_lowercase();
        let wanted = text("x-amz-sdk-checksum-algorithm").unwrap_or_default();
        let mut claims = Self { md5: text("content-md5").map(str::to_owned), ..Self::default() };
        for (algorithm, header, name) in ALGORITHMS {
            if let Some(value) = text(header) {
                claims.sums.insert(algorithm, value.to_owned());
            }
            let announced = trailer.split(',').any(|part| part.trim() == header);
            if announced
                || wanted.eq_ignore_ascii_case(name)
                || claims.sums.contains_key(&algorithm)
            {
                claims.algorithms.insert(algorithm);
            }
        }
        claims
    }

    /// Adds the checksums in the trailers.
    pub(super) fn add_trailers(&mut self, trailers: &HeaderMap) {
        let Self { sums, .. } = Self::of(trailers);
        self.sums.extend(sums);
    }

    /// Rejects content whose checksums differ from the claimed checksums.
    pub(super) fn check(&self, content: &Content) -> Result<(), Error> {
        if self.md5.as_ref().is_some_and(|md5| *md5 != STANDARD.encode(content.md5)) {
            return Err(Error::BadDigest { checksum: "Content-MD5" });
        }
        for (algorithm, _, name) in ALGORITHMS {
            if let Some(claimed) = self.sums.get(&algorithm)
                && content.checksums.get(&algorithm) != Some(claimed)
            {
                return Err(Error::BadDigest { checksum: name });
            }
        }
        Ok(())
    }
}

/// The length and the checksums of a complete content.
#[derive(Debug, Clone)]
pub(super) struct Content {
    /// The length in bytes.
    pub(super) length: u64,
    pub(super) checksums: Checksums,
    md5: [u8; 16],
}

impl Content {
    /// Returns the ETag: the MD5 in 32 hexadecimal digits, without quotes.
    pub(super) fn etag(&self) -> String {
        hex(&self.md5)
    }
}

/// The incremental computation of a content's checksums.
pub(super) struct Hasher {
    md5: Md5,
    sums: ChecksumHasher,
    length: u64,
}

impl Hasher {
    pub(super) fn new(claims: &Claims) -> Self {
        let mut sums = ChecksumHasher::default();
        for algorithm in &claims.algorithms {
            match algorithm {
                Algorithm::Crc32 => sums.crc32 = Some(s3s::crypto::Checksum::new()),
                Algorithm::Crc32c => sums.crc32c = Some(s3s::crypto::Checksum::new()),
                Algorithm::Crc64nvme => sums.crc64nvme = Some(s3s::crypto::Checksum::new()),
                Algorithm::Sha1 => sums.sha1 = Some(s3s::crypto::Checksum::new()),
                Algorithm::Sha256 => sums.sha256 = Some(s3s::crypto::Checksum::new()),
            }
        }
        Self { md5: Md5::new(), sums, length: 0 }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        self.sums.update(bytes);
        self.length += bytes.len() as u64;
    }

    /// Returns the number of bytes hashed so far.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn finish(self) -> Content {
        let sums = self.sums.finalize();
        let checksums = [
            (Algorithm::Crc32, sums.checksum_crc32),
            (Algorithm::Crc32c, sums.checksum_crc32c),
            (Algorithm::Crc64nvme, sums.checksum_crc64nvme),
            (Algorithm::Sha1, sums.checksum_sha1),
            (Algorithm::Sha256, sums.checksum_sha256),
        ];
        let checksums =
            checksums.into_iter().filter_map(|(algorithm, sum)| Some((algorithm, sum?))).collect();
        Content { length: self.length, checksums, md5: self.md5.finalize() }
    }
}

/// Returns the bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksums of "123456789". The CRC values are from the CRC catalogue, the hashes from
    /// `openssl dgst`.
    const CASES: [(&str, &str); 6] = [
        ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
        ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
        ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
    ];

    fn content_of(claims: &Claims, bytes: &[u8]) -> Content {
        let mut hasher = Hasher::new(claims);
        hasher.update(&bytes[..4]);
        hasher.update(&bytes[4..]);
        hasher.finish()
    }

    #[test]
    fn each_checksum_accepts_its_content_and_refuses_another() {
        for (header, value) in CASES {
            let mut headers = HeaderMap::new();
            headers.insert(header, value.parse().unwrap());
            let claims = Claims::of(&headers);
            let content = content_of(&claims, b"123456789");
            assert!(claims.check(&content).is_ok(), "{header}: {:?}", content.checksums);
            assert_eq!(content.etag(), "25f9e794323b453885f5181f1b624d0b");
            let other = content_of(&claims, b"123456780");
            assert!(matches!(claims.check(&other), Err(Error::BadDigest { .. })), "{header}");
        }
    }

    #[test]
    fn a_checksum_that_comes_as_a_trailer_counts_like_a_header() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-trailer", "x-amz-checksum-crc32".parse().unwrap());
        let mut claims = Claims::of(&headers);
        let content = content_of(&claims, b"123456789");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-amz-checksum-crc32", "y/Q5Jg==".parse().unwrap());
        claims.add_trailers(&trailers);
        assert!(claims.check(&content).is_ok());
        trailers.insert("x-amz-checksum-crc32", "AAAAAA==".parse().unwrap());
        claims.add_trailers(&trailers);
        assert!(claims.check(&content).is_err());
    }
}
