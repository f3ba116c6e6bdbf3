//! Listeners for connections: a TCP port, or a Unix socket.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use socket2::{Domain, SockRef, Socket as Socket2, Type};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A source of connections.
pub(crate) trait Listen {
    /// Type of a connection's stream.
    type Stream: AsyncRead + AsyncWrite + Gather + Unpin + Send + 'static;

    /// Waits for the next connection. Returns its stream, and its address if the stream has one.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<IpAddr>)>>;
}

/// A stream that writes several buffers at once.
pub(crate) trait Gather {
    /// Works like [`AsyncWrite::poll_write_vectored`], but makes the system call directly. The C library protects calls
    /// that may block against thread cancellation by two atomic exchanges, and no call blocks here.
    fn poll_gather(&self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;
}

/// Implements [`Gather`] for both kinds of streams.
macro_rules! gather {
    ($($stream:ident)+) => {
        $(
            impl Gather for $stream {
                fn poll_gather(&self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
                    loop {
                        ready!(self.poll_write_ready(cx))?;
                        match self.try_io(Interest::WRITABLE, || Ok(rustix::io::writev(self, pieces)?)) {
                            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                            written => return Poll::Ready(written),
                        }
                    }
                }
            }
        )+
    };
}
gather!(TcpStream UnixStream);

/// Size in bytes of the kernel's receive buffer of a connection. The kernel reserves twice as much.
const RECEIVE_BUFFER: usize = 16 * 1024;
/// Number of bytes of an answer that the kernel accepts beyond the client's window. The bytes that fit into the window
/// are sent at once, however many.
const UNSENT: u32 = 16 * 1024;
/// Size in bytes of the kernel's send buffer of a connection to the Unix socket.
const SEND_BUFFER: usize = 64 * 1024;
/// Number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens on a port. The kernel's buffers count as the container's memory, so their size is limited here.
///
/// `[::]` means all addresses of both families. If the kernel has no IPv6, it means those of IPv4.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let of_both_families = address.ip() == Ipv6Addr::UNSPECIFIED;
    let (address, socket) = match stream_socket(address) {
        Err(error) if of_both_families && Errno::from_io_error(&error) == Some(Errno::AFNOSUPPORT) => {
            let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            (address, stream_socket(address)?)
        }
        socket => (address, socket?),
    };
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // Connections inherit these options from their listener.
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn stream_socket(address: SocketAddr) -> io::Result<Socket2> {
    Socket2::new(Domain::for_address(address), Type::STREAM.cloexec().nonblocking(), None)
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Option<IpAddr>)> {
        let (stream, address) = self.accept().await?;
        // Each answer is written as a whole, so Nagle's algorithm would only delay it.
        let _ = stream.set_nodelay(true);
        Ok((stream, Some(client(address.ip()))))
    }
}

/// Returns the address by which connections of one client count together: an IPv4 address, or the /64 of an IPv6 address,
/// because one machine may have a whole /64.
fn client(address: IpAddr) -> IpAddr {
    // A listener of both families reports an IPv4 address as part of an IPv6 address.
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

/// A Unix socket, which is removed with the process.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Creates the socket. It replaces a socket on which no process listens.
    ///
    /// # Errors
    /// Another process listens on the socket, or the system refuses it.
    pub(crate) fn bind(path: &Path) -> io::Result<Socket> {
        let left = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
        if left {
            match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => return Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there")),
                Err(_) => std::fs::remove_file(path)?,
            }
        }
        let listener = UnixListener::bind(path)?;
        let socket = Socket { listener, path: path.to_owned() };
        // The containers of a pod run as different users. The permissions of the directory decide which of them have
        // access.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
        Ok(socket)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The socket may already have been removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Listen for Socket {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Option<IpAddr>)> {
        let (stream, _) = self.listener.accept().await?;
        let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
        Ok((stream, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_machine_are_one_client() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::9", "2001:db8:1:2::"),
            ("2001:db8:1:3::9", "2001:db8:1:3::"),
            ("::1", "::1"),
        ] {
            assert_eq!(client(address.parse().unwrap()).to_string(), expected);
        }
    }

    #[tokio::test]
    async fn unspecified_address_is_of_both_families() {
        let listener = bind("[::]:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        // A machine without IPv6 has no address of it either.
        let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
        for (host, answers) in [("127.0.0.1", true), ("::1", has_ipv6)] {
            let connected = TcpStream::connect((host, port)).await;
            assert_eq!(connected.is_ok(), answers, "{host}");
            if answers {
                let (_, address) = Listen::next(&listener).await.unwrap();
                assert_eq!(address, Some(host.parse().unwrap()));
            }
        }
    }
}
