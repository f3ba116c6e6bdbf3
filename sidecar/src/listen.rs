//! Where connections come from: a port, or a socket in the file system.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Where connections come from.
pub(crate) trait Listen {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Gather + Unpin + Send + 'static;

    /// Waits for the next one.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>>;

    /// Tells a client that there is no room. Best effort: it may not even read it.
    fn refuse(stream: &Self::Stream, answer: &[u8]);
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

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // Answers are whole when they are written: there is nothing to wait for.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    fn refuse(stream: &TcpStream, answer: &[u8]) {
        let _ = stream.try_write(answer);
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

    async fn next(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }

    fn refuse(stream: &UnixStream, answer: &[u8]) {
        let _ = stream.try_write(answer);
    }
}
