//! A load generator that costs less than any server: requests are prepared, only the status and the length of answers
//! are checked, and eight connections share one thread without a runtime.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::event::epoll;

/// Time without any progress after which a run fails.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of open connections.
const CONNECTIONS: usize = 8;

/// A request and the expected answer.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// Bytes of the request.
    pub request: Vec<u8>,
    /// Status of the answer.
    pub status: u16,
    /// Length of the answer's body in bytes.
    pub length: usize,
}

/// Rate of requests.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// Closed loop: each connection sends its next request when the last one is answered.
    Closed,
    /// Open loop: this number of requests per second, independent of the server. A late answer delays the next
    /// requests, whose latency includes the delay.
    Open(f64),
}

/// End of a run, after which only answers are awaited.
#[derive(Debug, Clone, Copy)]
enum Until {
    /// Ends at this time.
    Time(Instant),
    /// Ends after this number of requests.
    Sent(usize),
}

impl Until {
    fn is_over(self, now: Instant, sent: usize) -> bool {
        match self {
            Until::Time(end) => now >= end,
            Until::Sent(count) => sent >= count,
        }
    }
}

/// Result of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Number of answered requests per second.
    pub rate: f64,
    /// Latencies in nanoseconds, sorted.
    pub latencies: Vec<u32>,
    /// Number of answers with another status or length.
    pub failures: usize,
    /// Assignment keys in the answers to the first exchange. Answers with equal flags have equal keys.
    pub assignments: BTreeSet<Vec<u8>>,
}

impl Outcome {
    /// Returns the latency in microseconds that this fraction of the requests does not exceed.
    #[must_use]
    pub fn quantile(&self, part: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let index = (last as f64 * part).round() as usize;
        self.latencies.get(index).map_or(0.0, |nanoseconds| f64::from(*nanoseconds) / 1e3)
    }
}

/// An open connection.
struct Connection {
    stream: TcpStream,
    /// Due time and index of the request in progress.
    under_way: Option<(Instant, usize)>,
    /// Bytes of the answer's head, until it is complete.
    head: Vec<u8>,
    /// Number of bytes of the answer's body that are still to come, once the head is complete.
    rest: Option<usize>,
    good: bool,
}

/// Connections to one server.
pub struct Load {
    epoll: rustix::fd::OwnedFd,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
}

impl Load {
    /// Connects to a server.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(CONNECTIONS);
        for index in 0..CONNECTIONS {
            let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(&epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
            connections.push(Connection { stream, under_way: None, head: Vec::new(), rest: None, good: true });
        }
        Ok(Self { epoll, connections, buffer: vec![0; 256 * 1024] })
    }

    /// Sends requests for `time`, and waits for the last answers. `tick` is called every millisecond or so.
    ///
    /// # Errors
    /// A connection breaks. A wrong answer is no error, and is counted as a failure.
    pub fn run(
        &mut self,
        exchanges: &[Exchange],
        pace: Pace,
        time: Duration,
        tick: impl FnMut(),
    ) -> anyhow::Result<Outcome> {
        self.run_until(Until::Time(Instant::now() + time), exchanges, pace, tick)
    }

    /// Sends `count` requests, going through the exchanges in a cycle, and waits for the last answers.
    ///
    /// # Errors
    /// A connection breaks. A wrong answer is no error, and is counted as a failure.
    pub fn send(&mut self, exchanges: &[Exchange], count: usize) -> anyhow::Result<Outcome> {
        self.run_until(Until::Sent(count), exchanges, Pace::Closed, || ())
    }

    fn run_until(
        &mut self,
        until: Until,
        exchanges: &[Exchange],
        pace: Pace,
        mut tick: impl FnMut(),
    ) -> anyhow::Result<Outcome> {
        ensure!(!exchanges.is_empty(), "the load has no requests: give at least one exchange");
        let start = Instant::now();
        let mut outcome = Outcome { latencies: Vec::with_capacity(1 << 20), ..Outcome::default() };
        let mut sent = 0_usize;
        let mut events: [epoll::Event; CONNECTIONS] =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; CONNECTIONS];
        let (mut last_tick, mut last_step) = (start, start);
        loop {
            let now = Instant::now();
            if now.duration_since(last_tick) >= Duration::from_millis(1) {
                last_tick = now;
                tick();
            }
            let mut idle = 0;
            for connection in &mut self.connections {
                if connection.under_way.is_some() {
                    continue;
                }
                let due = match pace {
                    Pace::Closed => now,
                    Pace::Open(rate) => start + Duration::from_secs_f64(sent as f64 / rate),
                };
                if due > now || until.is_over(now, sent) {
                    idle += 1;
                    continue;
                }
                let which = sent % exchanges.len();
                if let Some(exchange) = exchanges.get(which) {
                    connection.send(&exchange.request)?;
                    connection.under_way = Some((due, which));
                    sent += 1;
                    last_step = now;
                }
            }
            if idle == CONNECTIONS && until.is_over(now, sent) {
                break;
            }
            ensure!(idle == CONNECTIONS || now < last_step + ANSWER_TIMEOUT, "an answer did not come for ten seconds");
            // A closed loop can wait for an answer. In an open loop, the next request may be due first.
            let timeout = match pace {
                Pace::Closed => Some(rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 }),
                Pace::Open(_) => Some(rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }),
            };
            let ready = epoll::wait(&self.epoll, &mut events, timeout.as_ref())?;
            for event in events.iter().take(ready) {
                last_step = now;
                let data = event.data;
                let Some(connection) = self.connections.get_mut(data.u64() as usize) else { continue };
                let Some((due, which)) = connection.under_way else { bail!("the server sent bytes without a request") };
                let Some(exchange) = exchanges.get(which) else { continue };
                let assignments = (which == 0).then_some(&mut outcome.assignments);
                if connection.receive(&mut self.buffer, exchange, assignments)? {
                    connection.under_way = None;
                    outcome.failures += usize::from(!connection.good);
                    outcome.latencies.push(u32::try_from(due.elapsed().as_nanos()).unwrap_or(u32::MAX));
                }
            }
        }
        outcome.rate = outcome.latencies.len() as f64 / start.elapsed().as_secs_f64();
        outcome.latencies.sort_unstable();
        Ok(outcome)
    }
}

impl Connection {
    fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.good = true;
        // A request fits into the empty buffer of a socket.
        let written = self.stream.write(request).context("cannot send a request")?;
        ensure!(written == request.len(), "a request did not fit into the socket's buffer");
        Ok(())
    }

    /// Receives available bytes. True if the answer is complete.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        exchange: &Exchange,
        assignments: Option<&mut BTreeSet<Vec<u8>>>,
    ) -> anyhow::Result<bool> {
        let count = match self.stream.read(buffer) {
            Ok(0) => bail!("the server hung up"),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error).context("cannot read an answer"),
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        let rest = match self.rest {
            Some(rest) => rest.checked_sub(count).context("the answer is longer than it says")?,
            None => {
                self.head.extend_from_slice(bytes);
                let Some(end) = find(&self.head, b"\r\n\r\n") else { return Ok(false) };
                let head = self.head.get(..end).unwrap_or_default();
                let length = content_length(head)?;
                self.good = status(head) == Some(exchange.status) && length == exchange.length;
                if let (Some(assignments), Some(assignment)) = (assignments, header(head, b"x-remora-assignment: ")) {
                    assignments.insert(assignment.to_vec());
                }
                let body = self.head.len() - end - 4;
                self.head.clear();
                length.checked_sub(body).context("the answer is longer than it says")?
            }
        };
        self.rest = (rest > 0).then_some(rest);
        Ok(rest == 0)
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Parses the status of a head, such as `HTTP/1.1 200 OK`.
fn status(head: &[u8]) -> Option<u16> {
    std::str::from_utf8(head.get(9..12)?).ok()?.parse().ok()
}

/// Returns the value of a header, whose name precedes a colon and a space.
fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = head.get(find(head, name)? + name.len()..)?;
    value.split(|byte| *byte == b'\r').next()
}

fn content_length(head: &[u8]) -> anyhow::Result<usize> {
    const NAME: &[u8] = b"content-length: ";
    let Some(at) = find(head, NAME) else { return Ok(0) };
    let digits = head.get(at + NAME.len()..).unwrap_or_default();
    Ok(digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |length, digit| length * 10 + usize::from(digit - b'0')))
}

/// Sends one request on a connection of its own.
///
/// # Errors
/// No complete answer arrives.
pub fn ask(address: SocketAddr, request: &[u8]) -> anyhow::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 64 * 1024];
    loop {
        let count = stream.read(&mut buffer)?;
        ensure!(count > 0, "the server hung up");
        bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let Some(end) = find(&bytes, b"\r\n\r\n") else { continue };
        let length = content_length(bytes.get(..end).unwrap_or_default())?;
        if bytes.len() < end + 4 + length {
            continue;
        }
        let body = bytes.split_off(end + 4);
        let status = status(&bytes).context("the answer has no status")?;
        return Ok(Answer { status, head: String::from_utf8_lossy(&bytes).into_owned(), body });
    }
}

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status of the answer.
    pub status: u16,
    /// Everything before the body.
    pub head: String,
    /// Body of the answer.
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the value of a header. `name` is in lower case, as hyper writes it.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers requests of one byte. Returns the bytes that arrived, once all connections are closed.
    fn answering(listener: &TcpListener) -> anyhow::Result<Vec<u8>> {
        let answer = |mut stream: TcpStream| -> std::io::Result<Vec<u8>> {
            let mut requests = Vec::new();
            let mut byte = [0];
            while stream.read(&mut byte)? > 0 {
                requests.extend_from_slice(&byte);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
            }
            Ok(requests)
        };
        let threads: Vec<_> = listener
            .incoming()
            .take(CONNECTIONS)
            .map(|stream| stream.map(|stream| std::thread::spawn(move || answer(stream))))
            .collect::<Result<_, _>>()?;
        let mut requests = Vec::new();
        for thread in threads {
            requests.extend(thread.join().map_err(|_| anyhow::anyhow!("a thread broke"))??);
        }
        Ok(requests)
    }

    #[test]
    fn load_sends_exchanges_in_turn_up_to_count() -> anyhow::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = std::thread::spawn(move || answering(&listener));
        let exchange = |request: &[u8], length| Exchange { request: request.to_vec(), status: 200, length };
        let mut load = Load::connect(address)?;
        let good = load.send(&[exchange(b"a", 2), exchange(b"b", 2), exchange(b"c", 2)], 100)?;
        assert_eq!((good.latencies.len(), good.failures), (100, 0));
        assert_eq!(load.send(&[exchange(b"d", 3)], 5)?.failures, 5);
        assert_eq!(load.send(&[exchange(b"d", 2)], 0)?.latencies.len(), 0);
        drop(load);
        let requests = server.join().map_err(|_| anyhow::anyhow!("the server broke"))??;
        let count = |which| requests.iter().filter(|byte| **byte == which).count();
        assert_eq!([b'a', b'b', b'c', b'd'].map(count), [34, 33, 33, 5]);
        Ok(())
    }
}
