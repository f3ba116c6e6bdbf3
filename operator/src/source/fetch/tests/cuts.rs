//! Answers that end too early, at any byte, are never accepted as a document.

use std::{net::Ipv4Addr, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

use super::*;
use crate::api::Reason;

/// Number of offsets tried of each answer, besides both ends.
const CUTS: usize = 40;

/// A server that sends these bytes to every client, and then closes or resets the connection.
struct Raw {
    port: u16,
    answer: Arc<Mutex<(Vec<u8>, bool)>>,
    asked: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Raw {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = Arc::new(Mutex::new((Vec::new(), false)));
        let asked = Arc::new(Mutex::new(0));
        let (scripted, counted) = (Arc::clone(&answer), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            loop {
                let Ok((mut connection, _)) = listener.accept().await else { return };
                let _ = connection.read(&mut [0; 4096]).await;
                let (bytes, reset) = scripted.lock().clone();
                // The client may have closed the connection already.
                let _ = connection.write_all(&bytes).await;
                if reset {
                    connection.set_zero_linger().unwrap();
                }
                *counted.lock() += 1;
            }
        });
        Self { port, answer, asked, task }
    }

    fn send(&self, bytes: &[u8], reset: bool) {
        *self.answer.lock() = (bytes.to_vec(), reset);
    }

    fn asked(&self) -> usize {
        *self.asked.lock()
    }

    fn scene(&self) -> Scene {
        Scene::url(&format!("http://upstream.test:{}", self.port))
    }
}

fn head(more: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{more}connection: close\r\n\r\n").into_bytes()
}

fn with_length(body: &[u8], more: &str) -> Vec<u8> {
    [head(&format!("content-length: {}\r\n{more}", body.len())), body.to_vec()].concat()
}

fn in_chunks(body: &[u8], more: &str) -> Vec<u8> {
    let mut answer = head(&format!("transfer-encoding: chunked\r\n{more}"));
    for piece in body.chunks(57) {
        answer.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        answer.extend(piece);
        answer.extend(b"\r\n");
    }
    answer.extend(b"0\r\n\r\n");
    answer
}

fn until_close(body: &[u8], more: &str) -> Vec<u8> {
    [head(more), body.to_vec()].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const GZIP: &str = "content-encoding: gzip\r\n";

/// Asserts that the fetch refuses the answer, or the parser refuses the pages that the fetch returns. HTTP cannot
/// detect some cuts (a body that ends with the connection, or correct framing around half a document): the parser has
/// to.
async fn assert_refused(upstream: &Raw, what: &str) {
    let asked = upstream.asked();
    refusal(&upstream.scene(), what).await;
    assert!(upstream.asked() > asked, "{what}: nobody asked");
}

async fn refusal(scene: &Scene, what: &str) {
    match scene.fetch().await {
        Err(error) => {
            assert!(matches!(error.reason(), Reason::UpstreamUnavailable | Reason::BodyTooLarge), "{what}: {error}");
        }
        Ok(Fetched::Document(arrived)) => {
            assert!(
                arrived.pages.iter().any(|page| document::parse(page).is_err()),
                "{what}: every page is a document"
            );
        }
        Ok(other) => panic!("{what}: {other:?}"),
    }
}

/// The answer ends at any byte, because the connection is closed there or reset there.
#[tokio::test]
async fn response_cut_at_any_offset_is_an_error() {
    let upstream = Raw::start().await;
    let body = environment(SETTLED, &["somebody", "somebody else"]).to_string().into_bytes();
    let packed = gzip(&body);
    let mut chance = fastrand::Rng::with_seed(5);
    for (name, answer) in [
        ("a length", with_length(&body, "")),
        ("chunks", in_chunks(&body, "")),
        ("the end of the connection", until_close(&body, "")),
        ("a length, compressed", with_length(&packed, GZIP)),
        ("chunks, compressed", in_chunks(&packed, GZIP)),
        ("the end of the connection, compressed", until_close(&packed, GZIP)),
    ] {
        upstream.send(&answer, false);
        assert_eq!(identities(upstream.scene().fetch().await.unwrap()).len(), 2, "{name}: the whole answer");
        let offsets: Vec<usize> = (0..CUTS).map(|_| chance.usize(..answer.len())).collect();
        for cut in offsets.into_iter().chain([0, 1, answer.len() - 1]) {
            upstream.send(&answer[..cut], cut % 2 == 1);
            assert_refused(&upstream, &format!("{name}, cut at {cut} of {}", answer.len())).await;
        }
    }
}

/// The framing is complete, but the document in it is not.
#[tokio::test]
async fn body_cut_within_valid_framing_is_an_error() {
    let upstream = Raw::start().await;
    let body = environment(SETTLED, &["somebody", "somebody else"]).to_string().into_bytes();
    let packed = gzip(&body);
    let mut chance = fastrand::Rng::with_seed(50);
    for (name, body, more) in [("plain", &body, ""), ("compressed", &packed, GZIP)] {
        for cut in (0..CUTS).map(|_| chance.usize(..body.len())).chain([0, 1, body.len() - 1]) {
            for answer in [with_length(&body[..cut], more), in_chunks(&body[..cut], more)] {
                upstream.send(&answer, false);
                assert_refused(&upstream, &format!("{name}, cut at {cut} of {}", body.len())).await;
            }
        }
    }
}

/// The announced length differs from the body's: a longer one makes the client wait for the rest, a shorter one leaves
/// a remainder.
#[tokio::test]
async fn body_of_other_length_than_announced_is_an_error() {
    let upstream = Raw::start().await;
    let body = environment(SETTLED, &["somebody"]).to_string();
    for announced in [0, 1, body.len() - 1, body.len() + 1, body.len() * 2, usize::MAX] {
        let answer = [head(&format!("content-length: {announced}\r\n")), body.clone().into_bytes()].concat();
        upstream.send(&answer, false);
        refusal(&upstream.scene(), &format!("{announced} announced")).await;
    }
}

/// A page that ends too early invalidates the pages before it.
#[tokio::test]
async fn cut_page_fails_whole_document() {
    let upstream = Upstream::http(|number, _| {
        let whole = environment(SETTLED, &[&format!("identity {number}")]).to_string();
        let cut = if number == 1 { whole.len() / 2 } else { whole.len() };
        let mut response = Response::new(Body::from(whole[..cut].to_owned()));
        if number == 0 {
            response.headers_mut().insert("link", "<?page=2>; rel=next".parse().unwrap());
        }
        response
    })
    .await;
    refusal(&Scene::at(&upstream), "a page that is cut").await;
    assert_eq!(upstream.asked().len(), 2);
}
