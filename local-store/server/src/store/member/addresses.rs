//! The addresses of the ring's nodes, kept beside the node's directory: a node finds the others after a restart, even
//! if its flags name only one of them. The ring has the truth.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::{fs, io};

use partition::{Ring, RingNode, Slot};

/// The file, a JSON object of slots and addresses.
const FILE: &str = "peers";

/// Returns the addresses that were kept last; nothing if there is no valid file.
pub(super) fn read(data: &Path) -> BTreeMap<u64, SocketAddr> {
    let text = fs::read(data.join(FILE)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Returns the addresses of the ring's nodes. An address in `flags` wins.
pub(super) fn of_ring(ring: &Ring, flags: &BTreeMap<u64, SocketAddr>) -> BTreeMap<u64, SocketAddr> {
    let address = |(slot, node): (&Slot, &RingNode)| {
        let slot = u64::from(slot.number());
        let own = flags.get(&slot).copied();
        Some((slot, own.or_else(|| node.address.as_ref()?.parse().ok())?))
    };
    ring.nodes.iter().filter_map(address).collect()
}

/// Keeps the addresses. A reader sees the earlier or the new ones.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(data: &Path, addresses: &BTreeMap<u64, SocketAddr>) -> io::Result<()> {
    let fresh = data.join("peers.new");
    fs::write(&fresh, serde_json::to_vec(addresses)?)?;
    fs::rename(fresh, data.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_and_a_broken_file_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).is_empty());
        let addresses = BTreeMap::from([(1, "127.0.0.1:9001".parse().unwrap())]);
        write(folder.path(), &addresses).unwrap();
        assert_eq!(read(folder.path()), addresses);
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(read(folder.path()).is_empty());
    }
}
