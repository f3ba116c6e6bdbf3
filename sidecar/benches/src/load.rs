//! A load generator that is cheaper than any server: requests are prepared, answers are only checked for their status
//! and their length, and eight connections share one thread without a runtime.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::event::epoll;

/// How many connections are kept.
const CONNECTIONS: usize = 8;

/// A request and what has to come back.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// As it is sent.
    pub request: Vec<u8>,
    /// The answer's status.
    pub status: u16,
    /// The length of the answer's body.
    pub length: usize,
}

/// How fast requests come.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// On each connection the next when the last is answered.
    Closed,
    /// So many a second, whatever the server does: a late answer makes the next ones late too, and is counted so.
    Open(f64),
}

/// When nothing more is sent; the last answers are waited for.
#[derive(Debug, Clone, Copy)]
enum Until {
    /// At this time.
    Time(Instant),
    /// When so many were.
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

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Requests that were answered a second.
    pub rate: f64,
    /// Nanoseconds, sorted.
    pub latencies: Vec<u32>,
    /// Answers with another status or length, and connections that broke.
    pub failures: usize,
}

impl Outcome {
    /// The latency that this part of the requests does not exceed, in microseconds.
    #[must_use]
    pub fn quantile(&self, part: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let index = (last as f64 * part).round() as usize;
        self.latencies.get(index).map_or(0.0, |nanoseconds| f64::from(*nanoseconds) / 1e3)
    }
}

/// One kept connection.
struct Connection {
    stream: TcpStream,
    /// Of the request under way: when it was due, and which it is.
    under_way: Option<(Instant, usize)>,
    /// Bytes of the answer's head, until it is complete.
    head: Vec<u8>,
    /// Bytes of the answer's body that are still to come, once the head is there.
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
    /// Connects.
    ///
    /// # Errors
    /// If the server cannot be reached.
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

    /// Sends requests for so long, and waits for the last answers. `tick` is called every millisecond or so.
    ///
    /// # Errors
    /// If connections break; a wrong answer is a failure that is counted.
    pub fn run(
        &mut self,
        exchanges: &[Exchange],
        pace: Pace,
        time: Duration,
        tick: impl FnMut(),
    ) -> anyhow::Result<Outcome> {
        self.run_until(Until::Time(Instant::now() + time), exchanges, pace, tick)
    }

    /// Sends so many requests, one exchange after the other and from the first again, and waits for the last answers.
    ///
    /// # Errors
    /// If connections break; a wrong answer is a failure that is counted.
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
        ensure!(!exchanges.is_empty(), "there is nothing to ask");
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
            let patience = Duration::from_secs(10);
            ensure!(idle == CONNECTIONS || now < last_step + patience, "an answer did not come for ten seconds");
            // In a closed loop there is nothing to do before an answer comes; in an open one time may come first.
            let patience = match pace {
                Pace::Closed => Some(rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 }),
                Pace::Open(_) => Some(rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }),
            };
            let ready = epoll::wait(&self.epoll, &mut events, patience.as_ref())?;
            for event in events.iter().take(ready) {
                last_step = now;
                let data = event.data;
                let Some(connection) = self.connections.get_mut(data.u64() as usize) else { continue };
                let Some((due, which)) = connection.under_way else { bail!("the server sent what nobody asked for") };
                let Some(exchange) = exchanges.get(which) else { continue };
                if connection.receive(&mut self.buffer, exchange)? {
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
        // A request fits into an empty socket's buffer.
        let written = self.stream.write(request).context("cannot send a request")?;
        ensure!(written == request.len(), "a request did not fit into the socket's buffer");
        Ok(())
    }

    /// Takes what is there; true when the answer is complete.
    fn receive(&mut self, buffer: &mut [u8], exchange: &Exchange) -> anyhow::Result<bool> {
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

/// The status of a head: `HTTP/1.1 200 OK`.
fn status(head: &[u8]) -> Option<u16> {
    std::str::from_utf8(head.get(9..12)?).ok()?.parse().ok()
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

/// Asks once, on a connection of its own.
///
/// # Errors
/// If nothing comes back.
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

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Everything before the body.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value; `name` in lower case, as hyper writes it.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers requests that are one byte, and tells how many came, once all connections are closed.
    fn answering(listener: &TcpListener) -> anyhow::Result<Vec<u8>> {
        let answer = |mut stream: TcpStream| -> std::io::Result<Vec<u8>> {
            let mut asked = Vec::new();
            let mut byte = [0];
            while stream.read(&mut byte)? > 0 {
                asked.extend_from_slice(&byte);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
            }
            Ok(asked)
        };
        let threads: Vec<_> = listener
            .incoming()
            .take(CONNECTIONS)
            .map(|stream| stream.map(|stream| std::thread::spawn(move || answer(stream))))
            .collect::<Result<_, _>>()?;
        let mut asked = Vec::new();
        for thread in threads {
            asked.extend(thread.join().map_err(|_| anyhow::anyhow!("a thread broke"))??);
        }
        Ok(asked)
    }

    #[test]
    fn so_many_are_sent_in_turn() -> anyhow::Result<()> {
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
        let asked = server.join().map_err(|_| anyhow::anyhow!("the server broke"))??;
        let count = |which| asked.iter().filter(|byte| **byte == which).count();
        assert_eq!([b'a', b'b', b'c', b'd'].map(count), [34, 33, 33, 5]);
        Ok(())
    }
}
