//! Taking a port, with an error that says what to do when it is not free.

use std::net::SocketAddr;

use tokio::net::TcpListener;

/// Listens on an address; port 0 takes a free port.
///
/// # Errors
/// One line that says why not and what to write instead.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => format!(
            "port {} on {} is in use: end the other process, or choose another port (0 takes a free one)",
            address.port(),
            address.ip()
        ),
        _ => format!("cannot listen on {address}: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let first = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = first.local_addr().unwrap();
        let error = bind(address).await.unwrap_err();
        assert!(
            error.contains(&format!("port {} on 127.0.0.1 is in use", address.port())),
            "{error}"
        );
    }
}
