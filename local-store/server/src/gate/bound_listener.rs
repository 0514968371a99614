//! Binds ports. The error for a port in use includes what to do.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::access::AccessKeys;

/// A bound address. Clients can already connect, but their requests wait until a listener serves
/// the address.
#[derive(Debug)]
pub struct BoundListener {
    tcp: TcpListener,
    address: SocketAddr,
}

/// The reason why an address could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens on the address.
    #[error(
        "{what}: port {} on {} is in use by another process; end that process or choose another port (port 0 picks a free one)",
        address.port(), address.ip()
    )]
    InUse {
        /// The name of the service.
        what: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// Other machines can reach the address, but the service does not require signed requests.
    #[error(
        "{what}: address=`{address}` can be reached from other machines, and requests are not authenticated; use 127.0.0.1"
    )]
    NotLoopback {
        /// The name of the service.
        what: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// The system refused the address for another reason.
    #[error("{what}: cannot listen on address=`{address}`: {source}")]
    Refused {
        /// The name of the service.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
}

impl BoundListener {
    /// Binds a loopback address; port 0 picks a free port. `what` names the service in errors.
    ///
    /// # Errors
    /// The address is in use, not loopback, or refused by the system.
    pub async fn new(what: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        if !address.ip().is_loopback() {
            return Err(BindError::NotLoopback { what, address });
        }
        Self::take(what, address).await
    }

    /// Binds any address, for a service whose requests must be signed with one of `keys`.
    ///
    /// # Errors
    /// The address is in use or refused by the system.
    pub async fn with_keys(
        what: &'static str,
        address: SocketAddr,
        _keys: &AccessKeys,
    ) -> Result<Self, BindError> {
        Self::take(what, address).await
    }

    async fn take(what: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        let tcp = take_port(what, address).await?;
        let local = tcp.local_addr();
        let address = local.map_err(|source| BindError::Refused { what, address, source })?;
        Ok(Self { tcp, address })
    }

    /// Returns the bound address. If port 0 was requested, it has the port that the system chose.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn into_parts(self) -> (TcpListener, SocketAddr) {
        (self.tcp, self.address)
    }
}

/// Binds an address for a protocol other than HTTP.
///
/// # Errors
/// The address is in use or refused by the system.
pub async fn take_port(what: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { what, address },
        _ => BindError::Refused { what, address, source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_and_one_in_reach_of_others_are_named() {
        let first = BoundListener::new("store", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let error = BoundListener::new("store", first.address()).await.unwrap_err().to_string();
        let part = format!("store: port {} on 127.0.0.1 is in use", first.address().port());
        assert!(error.contains(&part), "{error}");
        let error = BoundListener::new("store", "0.0.0.0:0".parse().unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("use 127.0.0.1"), "{error}");
    }
}
