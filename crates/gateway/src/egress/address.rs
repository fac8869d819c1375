//! Which addresses are public. Everything that is not is forbidden unless the operator allows it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::IpNet;

use super::{Kept, Rules};

/// Not for the public, by IANA's register of special addresses and what clouds do with others; each with the length
/// of its prefix.
const NOT_PUBLIC: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    // Azure answers its own machines here.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
];

impl Rules {
    /// Whether a resolved address may be connected to. `by_name`: the operator allowed the name it was found under.
    pub fn permits(&self, address: SocketAddr, by_name: bool) -> bool {
        let ip = address.ip().to_canonical();
        if !self.ports.contains(&address.port()) || self.is_own(SocketAddr::new(ip, address.port())) {
            return false;
        }
        if self.keeps(ip, address.port(), by_name || self.is_allowed(ip)) {
            return false;
        }
        // An IPv4 address inside an IPv6 one is reached like the latter and leads to the former: both must be right.
        by_name
            || (self.permits_ip(ip)
                && match ip {
                    IpAddr::V4(_) => true,
                    IpAddr::V6(ip) => {
                        self.is_allowed(ip.into()) || embedded(ip).is_none_or(|ip| self.permits_ip(ip.into()))
                    }
                })
    }

    fn keeps(&self, ip: IpAddr, port: u16, is_allowed: bool) -> bool {
        let is_it = |host: &str| host.parse::<IpAddr>().is_ok_and(|kept| kept.to_canonical() == ip);
        self.is_kept(is_it, port, is_allowed)
    }

    /// Whether something of our own is at a host. What else is at the same host may be called only where the operator
    /// allows that very host.
    pub(super) fn is_kept(&self, is_host: impl Fn(&str) -> bool, port: u16, is_allowed: bool) -> bool {
        let is_it = |kept: &Kept| !is_allowed || kept.port.is_none_or(|own| own == port);
        self.kept.iter().any(|kept| is_host(&kept.host) && is_it(kept))
    }

    /// Whether an address is ours, or what we keep our data in.
    pub(super) fn is_ours(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.is_own(SocketAddr::new(ip, address.port())) || self.keeps(ip, address.port(), self.is_allowed(ip))
    }

    fn permits_ip(&self, ip: IpAddr) -> bool {
        is_public(ip) || self.is_allowed(ip)
    }

    pub(super) fn is_allowed(&self, ip: IpAddr) -> bool {
        self.allowed_ranges.iter().any(|range| range.contains(&ip))
    }

    fn is_own(&self, address: SocketAddr) -> bool {
        self.own.iter().any(|own| {
            let ip = own.ip().to_canonical();
            let here = || address.ip().is_loopback() || address.ip().is_unspecified() || is_this_machine(address);
            own.port() == address.port() && (ip == address.ip() || (ip.is_unspecified() && here()))
        })
    }
}

/// Whether a range is narrow enough to be meant.
pub fn is_narrow(range: IpNet) -> bool {
    const LOCAL: u8 = 0xfc;
    match range {
        IpNet::V4(range) => range.prefix_len() >= 8,
        IpNet::V6(range) => {
            let is_local = range.addr().octets()[0] & 0xfe == LOCAL && range.prefix_len() >= 7;
            range.prefix_len() >= 16 || is_local
        }
    }
}

/// The machine answers itself from the very address that is called. Nothing is sent to find out.
fn is_this_machine(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let here = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    here.is_ok_and(|here| here.ip() == address.ip())
}

/// Whether an address is one of the open Internet.
pub fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let within = |(range, length): &(Ipv4Addr, u32)| (ip.to_bits() ^ range.to_bits()).leading_zeros() >= *length;
    !NOT_PUBLIC.iter().any(within)
}

/// Only what is given out to the public (2000::/3) and the well-known prefix of NAT64 can be; a list of what is not
/// would be wrong the day another range gets a meaning.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let parts = ip.segments();
    let is_given_out = parts[0] & 0xe000 == 0x2000;
    // 2001::/23 is for protocols, Teredo among them; the others are for documentation.
    let is_special =
        (parts[0] == 0x2001 && (parts[1] < 0x0200 || parts[1] == 0x0db8)) || (parts[0] == 0x3fff && parts[1] < 0x1000);
    (is_given_out && !is_special || is_nat64(&parts)) && embedded(ip).is_none_or(is_public_v4)
}

fn is_nat64(parts: &[u16; 8]) -> bool {
    parts[..6] == [0x64, 0xff9b, 0, 0, 0, 0]
}

/// The IPv4 address that packets to this one end up at: NAT64, 6to4 and ISATAP. Mapped ones are IPv4 before they come
/// here; compatible ones and Teredo are never public.
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = ip.segments();
    let of = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    if is_nat64(&parts) || (parts[4] & 0xfdff == 0 && parts[5] == 0x5efe) {
        of(parts[6], parts[7])
    } else if parts[0] == 0x2002 {
        of(parts[1], parts[2])
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str]) -> Rules {
        let allowed_ranges = allow.iter().map(|range| range.parse().unwrap()).collect();
        Rules { allowed_ranges, ports: vec![80, 443, 8080], ..Rules::default() }
    }

    fn permits(rules: &Rules, ip: &str) -> bool {
        rules.permits(SocketAddr::new(ip.parse().unwrap(), 443), false)
    }

    #[test]
    fn egr_3_no_address_that_is_not_public_is_permitted() {
        let forbidden = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.0.1",
            "169.254.169.254",
            "169.254.170.2",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.0.192",
            "192.0.2.7",
            "192.88.99.1",
            "192.168.0.1",
            "192.168.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.9",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            // Unspecified, loopback, unique-local, link-local, site-local, multicast, documentation, discard, reserved.
            "::",
            "::1",
            "fc00::1",
            "fd00:ec2::254",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "feff::1",
            "ff02::1",
            "ff0e::1",
            "2001:db8::1",
            "3fff::1",
            "3fff:fff::1",
            "100::1",
            "4000::1",
            "8000::1",
            "e000::1",
            "5f00::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            // Mapped.
            "::ffff:127.0.0.1",
            "::ffff:7f00:1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            // Compatible: not in use for anything, so none is public.
            "::127.0.0.1",
            "::10.0.0.1",
            "::8.8.8.8",
            "::ffff:0:127.0.0.1",
            // NAT64, its local prefix, 6to4, Teredo, ISATAP.
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "64:ff9b:1::8.8.8.8",
            "2002:7f00:1::",
            "2002:7f00:1::1",
            "2002:a00:1::1",
            "2002:c0a8:101::1",
            "2002:a9fe:a9fe::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001::1",
            "2a00:1450::5efe:10.0.0.1",
            "2a00:1450::200:5efe:127.0.0.1",
        ];
        for ip in forbidden {
            assert!(!permits(&rules(&[]), ip), "{ip}");
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.101.0",
            "203.0.112.0",
            "203.0.114.0",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2a00:1450::5efe:8.8.8.8",
            "3ffe::1",
        ];
        for ip in public {
            assert!(permits(&rules(&[]), ip), "{ip}");
        }
    }

    #[test]
    fn egr_3_exactly_what_the_operator_allows_is_permitted_besides() {
        let allowed = rules(&["10.1.0.0/16", "127.0.0.1/32", "fd12::/32"]);
        for ip in ["10.1.0.1", "10.1.255.255", "127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.1.2.3", "fd12::7", "8.8.8.8"]
        {
            assert!(permits(&allowed, ip), "{ip}");
        }
        for ip in ["10.0.255.255", "10.2.0.0", "127.0.0.2", "::1", "fd13::1", "2002:a00:1::1", "::127.0.0.1"] {
            assert!(!permits(&allowed, ip), "{ip}");
        }
        let within = rules(&["64:ff9b::/96"]);
        assert!(permits(&within, "64:ff9b::10.0.0.1"), "the operator said so");
    }

    #[test]
    fn egr_3_our_own_listeners_and_data_are_never_called() {
        let mut rules = rules(&["127.0.0.0/8", "::1/128", "10.0.0.0/8"]);
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        rules.own = vec![at("127.0.0.1:8080")];
        let kept = |host: &str, port| Kept { host: host.to_owned(), port };
        rules.kept = vec![kept("10.0.0.5", Some(443)), kept("10.0.0.6", None), kept("8.8.8.8", Some(80))];
        assert!(!rules.permits(at("127.0.0.1:8080"), false));
        assert!(!rules.permits(at("127.0.0.1:8080"), true), "nor by name");
        assert!(!rules.permits(at("[::ffff:127.0.0.1]:8080"), false));
        assert!(rules.permits(at("127.0.0.1:443"), false));
        for (address, expected) in [
            ("10.0.0.5:443", false),
            ("[::ffff:10.0.0.5]:443", false),
            ("10.0.0.5:8080", true),
            ("10.0.0.6:8080", false),
            ("8.8.8.8:80", false),
        ] {
            assert_eq!(rules.permits(at(address), false), expected, "{address}");
            assert_eq!(rules.permits(at(address), true), expected, "{address} by an allowed name");
        }
        assert!(!rules.permits(at("8.8.8.8:443"), false), "nobody allows what else is there");
        assert!(rules.permits(at("8.8.8.8:443"), true));
        rules.own = vec![at("[::]:8080")];
        for own in ["127.0.0.1:8080", "127.9.9.9:8080", "[::1]:8080"] {
            assert!(!rules.permits(at(own), false), "{own}");
        }
        assert!(rules.permits(at("10.9.9.9:8080"), false), "another machine");
    }

    #[test]
    fn egr_4_other_ports_are_not_called() {
        let rules = Rules::default();
        for (port, expected) in [(80, true), (443, true), (22, false), (8080, false), (5432, false), (0, false)] {
            assert_eq!(rules.permits(SocketAddr::new("8.8.8.8".parse().unwrap(), port), true), expected, "{port}");
        }
    }

    #[test]
    fn egr_3_ranges_that_mean_everything_are_not_narrow() {
        for wide in ["0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1", "8.0.0.0/7", "2000::/3", "::/8", "fc00::/6"] {
            assert!(!is_narrow(wide.parse().unwrap()), "{wide}");
        }
        for narrow in ["10.0.0.0/8", "127.0.0.1/32", "fc00::/7", "fd00::/8", "2001:db8::/32", "::1/128"] {
            assert!(is_narrow(narrow.parse().unwrap()), "{narrow}");
        }
    }
}
