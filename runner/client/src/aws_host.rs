//! Recognises AWS endpoints by their host name, and extracts the region from it.
//!
//! The module only compares strings; it opens no connection.

/// Domains of AWS's endpoints, except those of the partitions that are closed to the public.
/// Source: the endpoint rules of the AWS SDKs.
const AWS_DOMAINS: [&str; 5] = [
    ".amazonaws.com",
    ".api.aws",
    ".amazonaws.com.cn",
    ".api.amazonwebservices.com.cn",
    ".amazonaws.eu",
];

/// Returns the host of an AWS endpoint; `None` for any other endpoint.
fn aws_host(endpoint: &str) -> Option<&str> {
    let host = endpoint.strip_prefix("https://")?.split(['/', ':']).next()?;
    AWS_DOMAINS.iter().any(|domain| host.ends_with(domain)).then_some(host)
}

/// Returns true for an endpoint of AWS.
pub fn is_on_aws(endpoint: &str) -> bool {
    aws_host(endpoint).is_some()
}

/// Returns the Streams endpoint that belongs to a DynamoDB endpoint. AWS has a separate endpoint for
/// streams; a local store serves both APIs at one endpoint.
pub(crate) fn streams_endpoint(endpoint: &str) -> String {
    let Some(host) = aws_host(endpoint) else { return endpoint.to_owned() };
    let parted = if host.contains(".api.") { "streams-dynamodb" } else { "streams.dynamodb" };
    let of_service = |rest: &str| format!("https://{parted}{rest}");
    match endpoint.strip_prefix("https://dynamodb") {
        Some(rest) if rest.starts_with(['.', '-']) => of_service(rest),
        _ => endpoint.to_owned(),
    }
}

/// Returns the region for signatures. An AWS endpoint contains it, as in
/// `streams.dynamodb.eu-west-3.amazonaws.com` or `s3.dualstack.eu-west-3.amazonaws.com`.
pub fn region(endpoint: &str) -> String {
    let of_name = aws_host(endpoint).and_then(|host| host.split('.').find(|part| is_region(part)));
    let of_environment =
        || ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| std::env::var(name).ok());
    of_name.map(str::to_owned).or_else(of_environment).unwrap_or_else(|| "us-east-1".to_owned())
}

/// Returns true if a part of a host name is a region, such as `eu-west-3` or `us-gov-west-1`.
fn is_region(part: &str) -> bool {
    let words: Vec<&str> = part.split('-').collect();
    let [area, middle @ .., number] = words.as_slice() else { return false };
    let is_area = matches!(area.len(), 2 | 4) && area.bytes().all(|byte| byte.is_ascii_lowercase());
    is_area && !middle.is_empty() && number.len() <= 2 && number.parse::<u8>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_of_aws_is_in_the_name_of_its_endpoint() {
        for (endpoint, expected) in [
            ("https://dynamodb.eu-central-1.amazonaws.com", "eu-central-1"),
            ("https://streams.dynamodb.eu-west-3.amazonaws.com/", "eu-west-3"),
            ("https://dynamodb-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
            ("https://123456789012.ddb.eu-west-1.amazonaws.com", "eu-west-1"),
            ("https://vpce-1a2b-3c4d.dynamodb.eu-west-1.vpce.amazonaws.com", "eu-west-1"),
            ("https://dynamodb.cn-north-1.amazonaws.com.cn", "cn-north-1"),
            ("https://dynamodb.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1"),
            ("https://dynamodb.ap-southeast-2.api.aws", "ap-southeast-2"),
            ("https://s3.eu-west-3.amazonaws.com", "eu-west-3"),
            ("https://s3.dualstack.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ] {
            assert_eq!(region(endpoint), expected, "{endpoint}");
        }
        assert!(is_on_aws("https://dynamodb.eu-west-3.amazonaws.com:443/x"));
        for other in [
            "http://127.0.0.1:8000",
            "http://dynamodb.eu-west-3.amazonaws.com",
            "https://dynamodb.eu-west-3.amazonaws.com.example.org",
        ] {
            assert!(!is_on_aws(other), "{other}");
        }
    }

    #[test]
    fn streams_have_an_endpoint_of_their_own_on_aws() {
        for (endpoint, expected) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
            (
                "https://dynamodb.eu-west-3.amazonaws.com",
                "https://streams.dynamodb.eu-west-3.amazonaws.com",
            ),
            (
                "https://dynamodb-fips.us-east-1.amazonaws.com",
                "https://streams.dynamodb-fips.us-east-1.amazonaws.com",
            ),
            (
                "https://dynamodb.cn-north-1.amazonaws.com.cn",
                "https://streams.dynamodb.cn-north-1.amazonaws.com.cn",
            ),
            ("https://dynamodb.us-east-1.api.aws", "https://streams-dynamodb.us-east-1.api.aws"),
        ] {
            assert_eq!(streams_endpoint(endpoint), expected, "{endpoint}");
        }
    }
}
