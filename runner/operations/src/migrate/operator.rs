//! Finds the name of the operator who runs a command, for the journal of a migration. The name is
//! not authenticated.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// The file of this machine's accounts. A line has the user name, a password field, the user id and
/// other fields, separated by colons.
const ACCOUNTS: &str = "/etc/passwd";
/// The file with the machine's name on Linux. On other systems the machine's name is omitted.
const HOST: &str = "/proc/sys/kernel/hostname";
/// A directory whose owner is the user of this process, on Linux.
const PROCESS: &str = "/proc/self";

/// Returns the user and the machine, as `ada@build-7`; only the user if the machine's name is
/// unknown.
pub(crate) fn name() -> String {
    let named = ["USER", "LOGNAME"].into_iter().find_map(|it| std::env::var(it).ok());
    let id = fs::metadata(PROCESS).ok().map(|it| it.uid());
    let accounts = fs::read_to_string(ACCOUNTS).unwrap_or_default();
    let host = fs::read_to_string(HOST).unwrap_or_default();
    of(named.as_deref(), id, &accounts, host.trim())
}

/// Returns `named`, the value of an environment variable, else the account name of the user id.
/// Schedulers and containers often do not set `USER`.
fn of(named: Option<&str>, id: Option<u32>, accounts: &str, host: &str) -> String {
    let account = || {
        let id = id?.to_string();
        let entry = accounts.lines().find(|line| line.split(':').nth(2) == Some(&id));
        Some(
            entry
                .and_then(|line| line.split(':').next())
                .map_or(format!("uid {id}"), str::to_owned),
        )
    };
    let user = named.filter(|name| !name.is_empty()).map(str::to_owned).or_else(account);
    let user = user.unwrap_or_else(|| "unknown user".to_owned());
    if host.is_empty() { user } else { format!("{user}@{host}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_name_also_without_an_environment() {
        let accounts = "root:x:0:0::/:/bin/sh\nada:x:1000:1000::/:/bin/sh\n";
        for (named, id, host, expected) in [
            (Some("eve"), Some(1000), "build-7", "eve@build-7"),
            (Some(""), Some(1000), "build-7", "ada@build-7"),
            (None, Some(0), "", "root"),
            (None, Some(77), "build-7", "uid 77@build-7"),
            (None, None, "", "unknown user"),
        ] {
            assert_eq!(of(named, id, accounts, host), expected);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_a_user_and_a_machine() {
        let name = name();
        assert!(!name.starts_with("unknown") && name.contains('@'), "{name}");
    }
}
