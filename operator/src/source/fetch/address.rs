//! Address rules for connections. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::origin::Reach;

/// Returns true if a connection of this reach may go to `address`.
///
/// Link-local addresses are never allowed, because clouds serve credentials there. Neither are addresses that no server
/// can have, such as multicast.
pub(super) fn is_allowed(address: IpAddr, reach: Reach) -> bool {
    let address = embedded(address).map_or(address, IpAddr::V4);
    match reach {
        Reach::Public => is_public(address),
        Reach::Private => !is_off_limits(address),
    }
}

/// Returns the IPv4 address that an IPv6 address stands for (mapped, NAT64, 6to4).
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = address else {
        return None;
    };
    let from = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(from(high, low)),
        [0x2002, high, low, ..] => Some(from(high, low)),
        _ => v6.to_ipv4_mapped(),
    }
}

fn is_public(address: IpAddr) -> bool {
    if is_off_limits(address) || address.is_loopback() {
        return false;
    }
    match address {
        IpAddr::V4(v4) => !is_private_v4(v4),
        IpAddr::V6(v6) => is_global_v6(v6),
    }
}

fn is_off_limits(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            v4.is_link_local() || first == 0 || first >= 224
        }
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast(),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    match address.octets() {
        // Carrier-grade NAT; protocol assignments; benchmarks.
        [100, 64..=127, ..] | [192, 0, 0, _] | [198, 18..=19, ..] => true,
        _ => address.is_private() || address.is_documentation(),
    }
}

/// Returns true for global unicast (2000::/3) except Teredo and documentation addresses, which no server has.
fn is_global_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0x2001, 0, ..] | [0x2001, 0xdb8, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(address: &str, reach: Reach) -> bool {
        is_allowed(address.parse().unwrap(), reach)
    }

    #[test]
    fn public_address_is_allowed_for_every_origin() {
        for address in ["1.1.1.1", "99.86.4.2", "2606:4700::1111", "64:ff9b::101:101", "::ffff:1.1.1.1"] {
            assert!(allowed(address, Reach::Public), "{address}");
            assert!(allowed(address, Reach::Private), "{address}");
        }
    }

    #[test]
    fn private_address_is_allowed_for_listed_origins_only() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
            "100.64.0.1",
            "198.18.0.1",
            "::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::1",
        ] {
            assert!(!allowed(address, Reach::Public), "{address}");
            assert!(allowed(address, Reach::Private), "{address}");
        }
    }

    #[test]
    fn link_local_and_reserved_addresses_are_always_refused() {
        for address in [
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "::",
            "ff02::1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(!allowed(address, Reach::Public), "{address}");
            assert!(!allowed(address, Reach::Private), "{address}");
        }
    }
}
