//! Checks the `Host` of requests: it must name this machine.
//!
//! A page of any origin can make its own name resolve to 127.0.0.1 once it is loaded ("DNS rebinding"). To the browser,
//! the sidecar then has the same origin, and the page can read every answer. The `Host` header reveals this, because
//! the browser sends the page's name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::HOST;
use http::request::Parts;

/// True if a request names this machine, or no host at all, which a browser never does.
pub(crate) fn is_local(parts: &Parts) -> bool {
    let mut hosts = parts.headers.iter().filter(|(name, _)| *name == HOST);
    hosts.all(|(_, host)| names_this_machine(host.as_bytes()))
        && parts.uri.authority().is_none_or(|authority| names_this_machine(authority.as_str().as_bytes()))
}

/// True for a loopback address, and for the names that always resolve to one (RFC 6761), with or without a port.
fn names_this_machine(host: &[u8]) -> bool {
    let rest = host.strip_prefix(b"127.0.0.1").or_else(|| host.strip_prefix(b"localhost"));
    rest.is_some_and(is_port) || is_other_name(host)
}

/// True for an empty text, and for a colon and digits.
fn is_port(text: &[u8]) -> bool {
    match text {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Checks the rare forms for [`names_this_machine`].
#[cold]
fn is_other_name(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let (name, port) = match host.rfind([':', ']']) {
        Some(at) if host.as_bytes().get(at) == Some(&b':') => host.split_at(at),
        _ => (host, ""),
    };
    if !is_port(port.as_bytes()) {
        return false;
    }
    if let Some(address) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|address| IpAddr::V6(address).to_canonical().is_loopback());
    }
    if let Ok(address) = name.parse::<Ipv4Addr>() {
        return address.is_loopback();
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let top = name.rsplit('.').next().unwrap_or(name);
    top.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_this_machine_is_accepted_and_any_other_is_not() {
        for host in [
            "127.0.0.1:4777",
            "127.0.0.1",
            "127.0.0.1:",
            "localhost",
            "localhost:4777",
            "LocalHost:80",
            "localhost.",
            "app.localhost:3000",
            "127.1.2.3",
            "127.0.0.10:1",
            "[::1]",
            "[::1]:4777",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(names_this_machine(host.as_bytes()), "{host}");
        }
        for host in [
            "",
            ":80",
            "evil.test",
            "evil.test:4777",
            "127.0.0.1.evil.test",
            "localhost.evil.test",
            "localhostx",
            "127.0.0.1x",
            "127.0.0.1:x",
            "0.0.0.0",
            "10.0.0.1:4777",
            "[::]",
            "[::2]:1",
            "::1",
            "[::1",
            "[::1]x",
            "xlocalhost",
            "a@127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "localhost:80:80",
            "..",
        ] {
            assert!(!names_this_machine(host.as_bytes()), "{host}");
        }
        assert!(!names_this_machine(b"\xfflocalhost"));
    }
}
