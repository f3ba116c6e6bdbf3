//! Opens the ports.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use rustix::{io::Errno, net::sockopt::set_ipv6_v6only};
use tokio::net::{TcpListener, TcpSocket};

/// Number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Listens on an address. `[::]` means all addresses of both families. If the kernel has no IPv6, it means those of IPv4.
///
/// # Errors
/// If the address is in use or does not exist.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let unspecified = address.ip() == Ipv6Addr::UNSPECIFIED;
    match socket(address) {
        Err(error) if unspecified && Errno::from_io_error(&error) == Some(Errno::AFNOSUPPORT) => {
            let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            listen(socket(address)?, address)
        }
        Err(error) => Err(error),
        Ok(socket) => {
            if unspecified {
                set_ipv6_v6only(&socket, false)?;
            }
            listen(socket, address)
        }
    }
}

fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

fn listen(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpListener> {
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    async fn answers(listener: &TcpListener, host: &str) -> bool {
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((host, port)).await.is_ok()
    }

    #[tokio::test]
    async fn unspecified_address_is_of_both_families() {
        let listener = bind("[::]:0".parse().unwrap()).unwrap();
        assert!(answers(&listener, "127.0.0.1").await);
        // A machine without IPv6 has no address of it either.
        let has_ipv6 = TcpListener::bind("[::1]:0").await.is_ok();
        assert_eq!(answers(&listener, "::1").await, has_ipv6);
    }

    #[tokio::test]
    async fn other_address_is_of_its_family_only() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(answers(&listener, "127.0.0.1").await);
        assert!(!answers(&listener, "::1").await);
        let taken = listener.local_addr().unwrap();
        assert_eq!(bind(taken).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
