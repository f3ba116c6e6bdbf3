//! Where connections come from: a port, or a socket in the file system.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};

use socket2::{Domain, SockRef, Socket as Socket2, Type};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Where connections come from.
pub(crate) trait Listen {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Gather + Unpin + Send + 'static;

    /// Waits for the next one, and returns the address that it came from, where there is such a thing.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<IpAddr>)>>;
}

/// Writes several pieces at once.
pub(crate) trait Gather {
    /// As [`AsyncWrite::poll_write_vectored`], but by the system call itself: the C library guards those that may wait
    /// against threads that are cancelled, by two atomic exchanges, and nothing here waits.
    fn poll_gather(&self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;
}

/// `gather!` is the same for both kinds of streams.
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

/// Bytes that the kernel keeps of what a client sends and nobody has read yet. It takes twice as much for it.
const RECEIVE_BUFFER: usize = 16 * 1024;
/// Bytes of an answer that the kernel takes before the client's window has room for them. What a client does have room for
/// leaves at once, however much it is.
const UNSENT: u32 = 16 * 1024;
/// Bytes of an answer that the kernel keeps for a client of the socket.
const SEND_BUFFER: usize = 64 * 1024;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens on a port. What the kernel keeps of its connections counts as the container's memory, and is bounded here.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket2::new(Domain::for_address(address), Type::STREAM.cloexec().nonblocking(), None)?;
    socket.set_reuse_address(true)?;
    // Connections have these from their listener.
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Option<IpAddr>)> {
        let (stream, address) = self.accept().await?;
        // Answers are whole when they are written: there is nothing to wait for.
        let _ = stream.set_nodelay(true);
        Ok((stream, Some(address.ip())))
    }
}

/// A socket in the file system, which goes with the process.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Makes one. What an earlier process left there is replaced; what another one listens on is not.
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
        // The containers of a pod are different users. Who may ask is a matter of the directory.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
        Ok(socket)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // If it is gone already, so much the better.
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
