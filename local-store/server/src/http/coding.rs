//! Compression of bodies: gzip and deflate in requests and responses, with limits on the size.
//!
//! Source: RFC 9110, "Content Codings". The preferred coding and the minimum size follow the test suite of
//! Scylla's Alternator.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};

/// The minimum size in bytes of a compressed response, as in DynamoDB.
const COMPRESSED_BYTES_MIN: usize = 4096;

/// The reason why a body cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodingError {
    /// The coding is neither gzip nor deflate.
    Unknown,
    /// The compressed data is invalid or incomplete.
    Damaged,
    /// The decompressed body is larger than the maximum size of a request.
    TooLarge,
}

/// The coding of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    /// A zlib stream, as RFC 9110 defines `deflate`.
    Deflate,
    Unknown,
}

impl Coding {
    /// Returns the coding that a request's headers name.
    pub(super) fn of_request(headers: &HeaderMap) -> Self {
        let mut codings = headers.get_all(CONTENT_ENCODING).iter();
        match (codings.next(), codings.next()) {
            (None, _) => Self::Identity,
            (Some(coding), None) => match coding.as_bytes().trim_ascii() {
                b"gzip" | b"x-gzip" => Self::Gzip,
                b"deflate" => Self::Deflate,
                b"" | b"identity" => Self::Identity,
                _ => Self::Unknown,
            },
            (Some(_), Some(_)) => Self::Unknown,
        }
    }

    /// Decompresses a body, up to `max` bytes.
    pub(super) fn decode(self, body: Bytes, max: usize) -> Result<Bytes, CodingError> {
        match self {
            Self::Identity => Ok(body),
            Self::Unknown => Err(CodingError::Unknown),
            Self::Gzip => unpack(MultiGzDecoder::new(&*body), max),
            Self::Deflate => unpack(ZlibDecoder::new(&*body), max),
        }
    }
}

/// Reads the complete output of a decoder, at most `max` bytes.
fn unpack(decoder: impl Read, max: usize) -> Result<Bytes, CodingError> {
    let mut unpacked = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    match decoder.take(limit).read_to_end(&mut unpacked) {
        Ok(count) if count > max => Err(CodingError::TooLarge),
        Ok(_) => Ok(Bytes::from(unpacked)),
        Err(_) => Err(CodingError::Damaged),
    }
}

/// The coding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Gzip,
    Deflate,
}

/// All codings, in order of preference. `*` in a header means the first coding that the header does
/// not name.
const PACKINGS: [Packing; 2] = [Packing::Gzip, Packing::Deflate];

impl Packing {
    /// Returns the value of `Content-Encoding`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    fn pack(self, body: &[u8]) -> io::Result<Vec<u8>> {
        let packed = Vec::with_capacity(body.len() / 4);
        match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(packed, Compression::fast());
                encoder.write_all(body)?;
                encoder.finish()
            }
            Self::Deflate => {
                let mut encoder = ZlibEncoder::new(packed, Compression::fast());
                encoder.write_all(body)?;
                encoder.finish()
            }
        }
    }
}

/// Compresses a response with the coding that the client prefers. Returns `None` if the client accepts
/// no supported coding, or if the response is smaller than [`COMPRESSED_BYTES_MIN`].
pub(super) fn encode(request: &HeaderMap, body: &[u8]) -> Option<(Packing, Vec<u8>)> {
    if body.len() < COMPRESSED_BYTES_MIN {
        return None;
    }
    // If there are several `Accept-Encoding` headers, DynamoDB uses the first header.
    let accepted = request.get(ACCEPT_ENCODING)?.to_str().ok()?;
    let packing = best_packing(accepted)?;
    // Writing to memory never fails. If it did, the body would be sent uncompressed.
    Some((packing, packing.pack(body).ok()?))
}

/// Returns the supported coding with the highest quality value. Among equal values, the coding that the
/// header lists first wins. `*` stands for the codings that the header does not name; at equal quality, it
/// ranks after the named codings. `identity` is ignored.
fn best_packing(accepted: &str) -> Option<Packing> {
    let offers = || accepted.split(',').map(offer);
    let named =
        |packing: Packing| offers().any(|(name, _)| name.eq_ignore_ascii_case(packing.name()));
    let explicit = offers().filter_map(|(name, quality)| {
        let is_meant = |packing: &Packing| name.eq_ignore_ascii_case(packing.name());
        Some((PACKINGS.into_iter().find(is_meant)?, quality))
    });
    let others = offers().filter(|(name, _)| *name == "*").filter_map(|(_, quality)| {
        Some((PACKINGS.into_iter().find(|packing| !named(*packing))?, quality))
    });
    let mut best = None;
    for (packing, quality) in explicit.chain(others).filter(|(_, quality)| *quality > 0.0) {
        if best.is_none_or(|(_, so_far)| quality > so_far) {
            best = Some((packing, quality));
        }
    }
    best.map(|(packing, _)| packing)
}

/// Parses an element of `Accept-Encoding`. Returns the name of the coding and its quality from 0 to 1;
/// an invalid quality counts as 1. Like DynamoDB, reads the number after the first `q=`. Therefore `q =`
/// is not recognised, but `nq=` is.
fn offer(text: &str) -> (&str, f32) {
    let (name, parameters) = text.split_once(';').unwrap_or((text, ""));
    let quality = parameters.split_once("q=").and_then(|(_, rest)| rest.split(';').next());
    let quality =
        quality.map(str::trim).and_then(|text| text.parse().ok()).filter(|q: &f32| q.is_finite());
    (name.trim(), quality.unwrap_or(1.0).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn gzip(body: &[u8]) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body).unwrap();
        Bytes::from(encoder.finish().unwrap())
    }

    fn headers(name: http::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn codings_are_recognised() {
        for (value, coding) in [
            ("gzip", Coding::Gzip),
            ("deflate", Coding::Deflate),
            ("identity", Coding::Identity),
            ("br", Coding::Unknown),
            ("gzip, gzip", Coding::Unknown),
        ] {
            assert_eq!(Coding::of_request(&headers(CONTENT_ENCODING, value)), coding, "{value}");
        }
        let mut twice = headers(CONTENT_ENCODING, "gzip");
        twice.append(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(Coding::of_request(&twice), Coding::Unknown);
        assert_eq!(Coding::of_request(&HeaderMap::new()), Coding::Identity);
    }

    #[test]
    fn decompression_is_bounded() {
        let bomb = gzip(&vec![b' '; 8 * 1024 * 1024]);
        assert!(bomb.len() < 16 * 1024);
        for (body, max, outcome) in [
            (gzip(b"{}"), 2, Ok(Bytes::from_static(b"{}"))),
            (gzip(b"{}"), 1, Err(CodingError::TooLarge)),
            (bomb, 4096, Err(CodingError::TooLarge)),
            (Bytes::from_static(b"{}"), 10, Err(CodingError::Damaged)),
            (gzip(b"{\"a\":1}").slice(..12), 100, Err(CodingError::Damaged)),
        ] {
            assert_eq!(Coding::Gzip.decode(body, max), outcome);
        }
        let zlib = Bytes::from(Packing::Deflate.pack(b"{\"a\":1}").unwrap());
        for (body, max, outcome) in [
            (zlib.clone(), 7, Ok(Bytes::from_static(b"{\"a\":1}"))),
            (zlib.clone(), 6, Err(CodingError::TooLarge)),
            (zlib.slice(..zlib.len() - 1), 100, Err(CodingError::Damaged)),
            (Bytes::from_static(b"{}"), 10, Err(CodingError::Damaged)),
            (Bytes::new(), 10, Err(CodingError::Damaged)),
        ] {
            assert_eq!(Coding::Deflate.decode(body, max), outcome);
        }
        assert_eq!(Coding::Unknown.decode(Bytes::new(), 1), Err(CodingError::Unknown));
    }

    #[test]
    fn responses_are_compressed_if_the_client_accepts_it() {
        let body = vec![b'x'; COMPRESSED_BYTES_MIN];
        let gzip = encode(&headers(ACCEPT_ENCODING, "gzip"), &body);
        let (Packing::Gzip, packed) = gzip.unwrap() else { panic!("not gzip") };
        assert_eq!(Coding::Gzip.decode(Bytes::from(packed), body.len()).unwrap(), body);
        let deflate = encode(&headers(ACCEPT_ENCODING, "deflate"), &body);
        let (Packing::Deflate, packed) = deflate.unwrap() else { panic!("not deflate") };
        assert_eq!(Coding::Deflate.decode(Bytes::from(packed), body.len()).unwrap(), body);
        assert_eq!(encode(&headers(ACCEPT_ENCODING, "identity"), &body), None);
        assert_eq!(encode(&headers(ACCEPT_ENCODING, "gzip"), body.get(1..).unwrap()), None);
        for (lines, is_packed) in [(["gzip", "identity"], true), (["identity", "gzip"], false)] {
            let mut twice = HeaderMap::new();
            for line in lines {
                twice.append(ACCEPT_ENCODING, HeaderValue::from_static(line));
            }
            assert_eq!(encode(&twice, &body).is_some(), is_packed, "{twice:?}");
        }
    }

    #[test]
    fn the_preferred_coding_is_used() {
        let (gzip, deflate) = (Some(Packing::Gzip), Some(Packing::Deflate));
        for (accepted, expected) in [
            ("", None),
            ("gzipped", None),
            ("gzip;q=0", None),
            ("GZIP", gzip),
            ("deflate;q=0.4, GZIP;q=0.5", gzip),
            ("br, identity, deflate, gzip", deflate),
            ("br, gzip;q=0, deflate; q = 0.5 , identity;q=0", deflate),
            ("*", gzip),
            ("*, deflate;q=0.5", gzip),
            ("*, deflate", deflate),
            ("*, gzip;q=0.5", deflate),
            ("*;q=0.5,identity", gzip),
            ("deflate;q=0.5, gzip;q=0.2", deflate),
            ("deflate;q=0.5, gzip;q=1;q=0.2", gzip),
            ("gzip;q= 0;q=1", None),
            ("gzip;q =0;q=1", gzip),
            ("gzip; q=0;q=1", None),
            ("gzip;nq=0;q=1", None),
            ("gzip ;q=0", None),
            ("deflate;q=0.5,gzip;q=0. x", gzip),
            ("deflate;q=0.5,gzip;q=0.", deflate),
            ("deflate;q=0.5,gzip;q=0.x", gzip),
            ("deflate;q=2,gzip", deflate),
            ("deflate;q=-1,gzip;q=nan", gzip),
        ] {
            assert_eq!(best_packing(accepted), expected, "{accepted}");
        }
    }
}
