//! The rate-limited copy: every byte arrives, and never sooner than the link allows.

use hwprofiles::units::{Bytes, BytesPerSec, Seconds};
use kernels::RateLimitedLink;

#[test]
fn a_copy_carries_every_byte_and_is_never_faster_than_the_link() {
    let link = RateLimitedLink::new(Seconds::new(20e-6), BytesPerSec::new(2e9));
    for len in [1, 4095, 1 << 20, (3 << 20) + 17] {
        let from: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
        let mut to = vec![0; len];
        let took = link.copy(&mut to, &from);
        assert!(to == from, "{len} bytes");
        assert!(took >= link.time(Bytes::new(len as u64)), "{len} bytes took {took}");
    }
}

#[test]
fn the_model_of_a_link_is_latency_plus_bytes_over_bandwidth() {
    let link = RateLimitedLink::new(Seconds::new(1e-6), BytesPerSec::new(1e9));
    assert!((link.time(Bytes::new(1000)).get() - 2e-6).abs() < 1e-15);
    assert!((link.time(Bytes::ZERO).get() - 1e-6).abs() < 1e-15);
}
