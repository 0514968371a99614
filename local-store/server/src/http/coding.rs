//! Compressed bodies: gzip in requests and answers, with bounds.
//!
//! Source: RFC 9110, "Content Codings".

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};

/// Answers below this size are sent as they are: what compressing them saves is less than it costs.
const COMPRESSED_BYTES_MIN: usize = 1024;

/// Why a body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodingError {
    /// The coding is not gzip.
    Unknown,
    /// It is no gzip, or not all of it.
    Damaged,
    /// It is larger than a request may be once it is unpacked.
    TooLarge,
}

/// How a request's body is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    Unknown,
}

impl Coding {
    /// The coding that a request says its body has.
    pub(super) fn of_request(headers: &HeaderMap) -> Self {
        let mut codings = headers.get_all(CONTENT_ENCODING).iter();
        match (codings.next(), codings.next()) {
            (None, _) => Self::Identity,
            (Some(coding), None) => match coding.as_bytes().trim_ascii() {
                b"gzip" | b"x-gzip" => Self::Gzip,
                b"" | b"identity" => Self::Identity,
                _ => Self::Unknown,
            },
            (Some(_), Some(_)) => Self::Unknown,
        }
    }

    /// Unpacks a body; never more than `max` bytes of it.
    pub(super) fn decode(self, body: Bytes, max: usize) -> Result<Bytes, CodingError> {
        match self {
            Self::Identity => Ok(body),
            Self::Unknown => Err(CodingError::Unknown),
            Self::Gzip => {
                let mut unpacked = Vec::new();
                let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
                let read = MultiGzDecoder::new(&*body).take(limit).read_to_end(&mut unpacked);
                match read {
                    Ok(count) if count > max => Err(CodingError::TooLarge),
                    Ok(_) => Ok(Bytes::from(unpacked)),
                    Err(_) => Err(CodingError::Damaged),
                }
            }
        }
    }
}

/// The answer in gzip, when the client takes it and it is worth it.
pub(super) fn encode(request: &HeaderMap, body: &[u8]) -> Option<Vec<u8>> {
    if body.len() < COMPRESSED_BYTES_MIN || !accepts_gzip(request) {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    // Writing into memory does not fail; if it did, the body would be sent as it is.
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}

fn accepts_gzip(request: &HeaderMap) -> bool {
    let values = request.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|offer| {
        let mut parts = offer.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let quality = parts.find_map(|part| part.strip_prefix("q="));
        is_gzip && quality.is_none_or(|q| q.parse().is_ok_and(|q: f32| q > 0.0))
    })
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
    fn codings_are_named() {
        for (value, coding) in [
            ("gzip", Coding::Gzip),
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
    fn what_is_unpacked_is_bounded() {
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
        assert_eq!(Coding::Unknown.decode(Bytes::new(), 1), Err(CodingError::Unknown));
    }

    #[test]
    fn answers_are_compressed_for_those_who_take_it() {
        let body = vec![b'x'; 5000];
        for (value, is_compressed) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("gzipped", false),
        ] {
            let encoded = encode(&headers(ACCEPT_ENCODING, value), &body);
            assert_eq!(encoded.is_some(), is_compressed, "{value}");
            if let Some(encoded) = encoded {
                assert_eq!(Coding::Gzip.decode(Bytes::from(encoded), 5000).unwrap(), body);
            }
        }
        assert_eq!(encode(&headers(ACCEPT_ENCODING, "gzip"), b"{}"), None);
    }
}
