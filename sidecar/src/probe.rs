//! Asks a sidecar if the application may start. Kubelet runs this inside the container.
//!
//! A request from outside of the container would pass through a service mesh, which may redirect the pod's network
//! before its own proxy answers.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Time for which a probe repeats its request, and in which the last answer must have arrived. It is shorter than
/// kubelet's period, so that one probe ends before the next begins.
const TIMEOUT: Duration = Duration::from_millis(900);

/// Largest number of bytes that are read of an answer.
const MAX_ANSWER: usize = 4096;

/// Pause between two requests, which bounds the delay of the application once it may start.
const PAUSE: Duration = Duration::from_millis(20);

/// Reason why the application may not start yet.
#[derive(Debug, thiserror::Error)]
pub enum NotYet {
    /// The sidecar did not answer.
    #[error("the sidecar at {0} does not answer: {1}")]
    Silent(SocketAddr, std::io::Error),
    /// The sidecar refused, with this text.
    #[error("{0}")]
    No(String),
}

/// Requests `/startupz` of the admin port until it succeeds, for about 900 ms.
///
/// # Errors
/// No request succeeded in that time. The error is that of the last request that ended in it.
pub fn probe(admin: SocketAddr) -> Result<(), NotYet> {
    probe_until(admin, Instant::now() + TIMEOUT)
}

fn probe_until(admin: SocketAddr, until: Instant) -> Result<(), NotYet> {
    let mut last = None;
    loop {
        let Err(not_yet) = ask(admin, until) else { return Ok(()) };
        let is_over = Instant::now() + PAUSE >= until;
        // A refusal says more than the timeout that follows it.
        let not_yet = match (not_yet, last.take()) {
            (NotYet::Silent(..), Some(refusal @ NotYet::No(_))) if is_over => refusal,
            (not_yet, _) => not_yet,
        };
        if is_over {
            return Err(not_yet);
        }
        last = Some(not_yet);
        std::thread::sleep(PAUSE);
    }
}

fn ask(admin: SocketAddr, until: Instant) -> Result<(), NotYet> {
    let answer = exchange(admin, until).map_err(|error| NotYet::Silent(admin, error))?;
    let answer = String::from_utf8_lossy(&answer);
    if answer.starts_with("HTTP/1.1 200 ") {
        return Ok(());
    }
    let reason = answer.split_once("\r\n\r\n").map_or(&*answer, |(_, body)| body);
    Err(NotYet::No(reason.trim_end().chars().take(200).collect()))
}

fn exchange(admin: SocketAddr, until: Instant) -> std::io::Result<Vec<u8>> {
    let left = || match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut),
        left => Ok(left),
    };
    let mut stream = TcpStream::connect_timeout(&admin, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(b"GET /startupz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let (mut answer, mut length) = (vec![0; MAX_ANSWER], 0);
    while let Some(room) = answer.get_mut(length..).filter(|room| !room.is_empty()) {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(room)? {
            0 => break,
            read => length += read,
        }
    }
    answer.truncate(length);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Starts a server that sends these answers, one per connection.
    fn server(answers: Vec<&'static str>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let length = stream.read(&mut request).unwrap();
                assert!(request[..length].starts_with(b"GET /startupz HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn probe_repeats_until_the_sidecar_is_ready() {
        let no = "HTTP/1.1 503 Service Unavailable\r\n\r\nno snapshot yet\n";
        let admin = server(vec![no, no, "HTTP/1.1 200 OK\r\n\r\nok\n"]);
        assert!(probe_until(admin, Instant::now() + Duration::from_secs(60)).is_ok());
    }

    #[test]
    fn probe_of_a_server_that_drips_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            // Two seconds: more than a probe lasts, in steps that no timeout of one read ends.
            for _ in 0..20 {
                thread::sleep(Duration::from_millis(100));
                let _ = stream.write_all(b"x");
            }
        });
        assert!(matches!(probe(address), Err(NotYet::Silent(..))));
    }

    #[test]
    fn probe_reports_the_last_refusal() {
        let no = "HTTP/1.1 503 Service Unavailable\r\n\r\nno snapshot yet\n";
        let until = Instant::now() + Duration::from_secs(4);
        assert_eq!(probe_until(server(vec![no; 1000]), until).unwrap_err().to_string(), "no snapshot yet");
        // No test listens on this port.
        let closed = SocketAddr::from(([127, 0, 0, 1], 1));
        assert!(matches!(probe(closed), Err(NotYet::Silent(..))));
    }
}
