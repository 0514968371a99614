//! The hosts and origins that the operator allows in addition to this machine's own names.

use http::uri::Authority;

use super::cors::Origins;

/// The hosts and origins that the operator allows.
#[derive(Clone, Debug, Default)]
pub struct AllowList {
    /// The names of hosts in lower case.
    hosts: Vec<String>,
    origins: Origins,
}

/// The reason why a value is neither a host nor an origin.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AllowListError {
    /// A value of `--allow-host` is not a host.
    #[error(
        "--allow-host `{0}` is not a host; write a name without scheme and port, such as store.test"
    )]
    Host(String),
    /// A value of `--allow-origin` is not an origin.
    #[error("--allow-origin `{0}` is not an origin; write one such as http://localhost:3000")]
    Origin(String),
}

impl AllowList {
    /// Creates a list from names such as `store.test` and origins such as `http://localhost:3000`.
    ///
    /// # Errors
    /// The first value that is not a valid host or origin.
    pub fn new(hosts: &[String], origins: &[String]) -> Result<Self, AllowListError> {
        let mut allowed = Self::default();
        for text in hosts {
            let authority: Option<Authority> = text.parse().ok();
            let is_host = authority.is_some_and(|authority| authority.host() == text)
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_.[]:".contains(&byte));
            if !is_host {
                return Err(AllowListError::Host(text.clone()));
            }
            allowed.hosts.push(text.trim_matches(['[', ']']).to_ascii_lowercase());
        }
        for text in origins {
            if !allowed.origins.add(text) {
                return Err(AllowListError::Origin(text.clone()));
            }
        }
        Ok(allowed)
    }

    /// Returns whether the operator allows the host. `host` is in lower case.
    pub(super) fn has_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|named| named == host)
    }

    pub(super) fn origins(&self) -> &Origins {
        &self.origins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_and_origins_are_accepted() {
        for (host, is_host) in [
            ("store.test", true),
            ("Store_1", true),
            ("192.168.0.7", true),
            ("[fe80::1]", true),
            ("store.test:8000", false),
            ("http://store.test", false),
            ("*", false),
            ("*.test", false),
            ("a@b", false),
            ("", false),
        ] {
            assert_eq!(AllowList::new(&[host.to_owned()], &[]).is_ok(), is_host, "{host}");
        }
        for (origin, is_origin) in [
            ("http://localhost:3000", true),
            ("https://example.com", true),
            ("*", false),
            ("null", false),
            ("localhost:3000", false),
            ("http://localhost:3000/", false),
            ("http://localhost/path", false),
            ("http://a@b", false),
        ] {
            assert_eq!(AllowList::new(&[], &[origin.to_owned()]).is_ok(), is_origin, "{origin}");
        }
    }
}
