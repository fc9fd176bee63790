//! Any bytes are read or refused, never a panic; a row that is read asks for the same when it
//! stands alone.
#![no_main]

use hwprofiles::Operations;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut operations) = Operations::new(bytes, "fuzz") else { return };
    let header = operations.rows().text().to_vec();
    while let Ok(Some(operation)) = operations.advance() {
        let alone = [&header, &b"\n"[..], operations.rows().text()].concat();
        let mut again = Operations::new(&alone[..], "alone").expect("the same header");
        assert_eq!(again.advance(), Ok(Some(operation)));
        let _ = operations.measured();
    }
});
