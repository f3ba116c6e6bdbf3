//! Requests whose end depends on the reader: the webhook answers each with one refusal, and reads nothing behind it.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Starts a server whose only route counts its requests.
async fn counting() -> (Server, Certificate, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let handler = move |body: String| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready((Extension(Useful), body))
    };
    let (server, trusted) = start_with(limits(), Router::new().route("/mutate", post(handler))).await;
    (server, trusted, seen)
}

/// Sends bytes, closes the sending side, and returns all received bytes once the server closes the connection.
async fn exchange(server: &Server, trusted: &Certificate, bytes: &[u8]) -> String {
    let mut stream = tls(server, trusted).await;
    stream.write_all(bytes).await.unwrap();
    let mut answers = Vec::new();
    // A server that closes a connection with unread bytes may reset it.
    let reading = stream.read_to_end(&mut answers);
    let _ = timeout(Duration::from_secs(60), reading).await.expect("the connection does not end");
    String::from_utf8_lossy(&answers).into_owned()
}

const REQUEST: &str = "POST /mutate HTTP/1.1\r\nhost: x\r\n";

#[tokio::test]
async fn request_with_ambiguous_framing_is_refused_and_ends_its_connection() {
    let (server, trusted, seen) = counting().await;
    let smuggled = format!("{REQUEST}content-length: 8\r\n\r\nsmuggled");
    let chunk = format!("{:x}\r\n", smuggled.len());
    for (rest, statuses) in [
        // Lengths that differ, or that are not numbers.
        ("content-length: 2\r\ncontent-length: 3\r\n\r\n{}", &["400"][..]),
        ("content-length: 3\r\ncontent-length: 2\r\n\r\n{}", &["400"]),
        ("content-length: 2, 2\r\n\r\n{}", &["400"]),
        ("content-length: +2\r\n\r\n{}", &["400"]),
        ("content-length: 0x2\r\n\r\n{}", &["400"]),
        ("content-length: -2\r\n\r\n{}", &["400"]),
        ("content-length:\r\n\r\n{}", &["400"]),
        ("content-length : 2\r\n\r\n{}", &["400"]),
        // A length and chunks, in both orders. By its length, the first body ends before the next request. By its
        // chunks, it contains that request.
        (&format!("content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"), &["411"]),
        (&format!("transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{chunk}"), &["411"]),
        ("content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", &["411"]),
        ("transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", &["411"]),
        // Chunks alone, and with extensions and odd sizes.
        ("transfer-encoding: chunked\r\n\r\n0\r\n\r\n", &["411"]),
        ("transfer-encoding: chunked\r\n\r\n0;x=\"\r\n\r\n", &["411"]),
        ("transfer-encoding: chunked\r\n\r\n2;\n{}\r\n0\r\n\r\n", &["411"]),
        ("transfer-encoding: chunked\r\n\r\n-1\r\n\r\n", &["411"]),
        ("transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n", &["411"]),
        // Codings whose last one is not `chunked`, and hidden codings.
        ("transfer-encoding: xchunked\r\n\r\n{}", &["400"]),
        ("transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", &["400"]),
        ("transfer-encoding: identity\r\ncontent-length: 2\r\n\r\n{}", &["400"]),
        ("transfer-encoding : chunked\r\n\r\n0\r\n\r\n", &["400"]),
        ("transfer-encoding: \u{b}chunked\r\n\r\n0\r\n\r\n", &["400"]),
        // Lines that are folded, or continue a name.
        ("x: a\r\n transfer-encoding: chunked\r\n\r\n0\r\n\r\n", &["400"]),
        ("content-length: 2\r\n 3\r\n\r\n{}", &["400"]),
        ("x: a\rtransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}", &["400"]),
        ("x: a\0b\r\ncontent-length: 2\r\n\r\n{}", &["400"]),
    ] {
        let answers = exchange(&server, &trusted, [REQUEST, rest, &smuggled].concat().as_bytes()).await;
        let answered: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect();
        assert!(answered == statuses, "{rest:?}: {answers}");
        assert_eq!(seen.load(Ordering::SeqCst), 0, "{rest:?} is taken for a request: {answers}");
    }
    let client = server.client(&trusted);
    assert_eq!(server.ask(&client).await.unwrap(), "hello");
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

/// Line ends do not change how the webhook divides the bytes into requests: only the lengths do.
#[tokio::test]
async fn requests_with_bare_line_feeds_or_equal_lengths_are_read_in_one_way() {
    let (server, trusted, seen) = counting().await;
    let last = "POST /mutate HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\nlast";
    for first in [
        "POST /mutate HTTP/1.1\nhost: x\ncontent-length: 5\n\nfirst",
        "POST /mutate HTTP/1.1\r\nhost: x\ncontent-length: 5\r\n\nfirst",
        "\r\nPOST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nfirst",
        "POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nfirst",
    ] {
        let before = seen.load(Ordering::SeqCst);
        let answers = exchange(&server, &trusted, [first, last].concat().as_bytes()).await;
        let bodies: Vec<&str> =
            answers.split("\r\n\r\n").skip(1).map(|rest| rest.split("HTTP").next().unwrap()).collect();
        match seen.load(Ordering::SeqCst) - before {
            0 => assert!(
                answers.starts_with("HTTP/1.1 400") && answers.matches("HTTP/1.1").count() == 1,
                "{first:?}: {answers}"
            ),
            2 => assert_eq!(bodies, ["first", "last"], "{first:?}: {answers}"),
            count => panic!("{first:?} and another are {count} requests: {answers}"),
        }
    }
}
