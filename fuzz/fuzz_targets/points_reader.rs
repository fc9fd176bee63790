//! Any bytes are points or refused, never a panic; points that are read have times above zero and
//! none is lost in folds.
#![no_main]

use hwprofiles::{MeasuredPoints, Seconds};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut points = MeasuredPoints::default();
    if points.read(bytes, "fuzz").is_err() {
        return;
    }
    for (_, device) in points.devices() {
        assert!(!device.is_empty() && device.spread() >= 0.0);
        assert!(device.operations().all(|(_, time)| time > Seconds::ZERO));
        assert!(device.transfers().iter().all(|transfer| transfer.time > Seconds::ZERO));
        let (test, rest) = device.fold(0, 5);
        assert_eq!(test.len() + rest.len(), device.len());
    }
});
