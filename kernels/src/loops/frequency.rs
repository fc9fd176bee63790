//! A loop whose time shows the frequency of a core's clock.

/// Runs `count` additions, each of which waits for the previous one, so they take `count` cycles.
/// Returns `count`. Their time gives the clock's real frequency, which a virtual machine does not
/// report.
pub fn dependent_adds(count: u64) -> u64 {
    let one = std::hint::black_box(1u64);
    let mut sum = 0u64;
    // The addend is in a register, because the latest cores fold chains of constants. Sixteen
    // additions in a row hide the loop.
    for _ in 0..count / 16 {
        // SAFETY: the instructions change only `sum` and the flags.
        unsafe {
            std::arch::asm!(
                "add {sum}, {one}", "add {sum}, {one}", "add {sum}, {one}", "add {sum}, {one}",
                "add {sum}, {one}", "add {sum}, {one}", "add {sum}, {one}", "add {sum}, {one}",
                "add {sum}, {one}", "add {sum}, {one}", "add {sum}, {one}", "add {sum}, {one}",
                "add {sum}, {one}", "add {sum}, {one}", "add {sum}, {one}", "add {sum}, {one}",
                sum = inout(reg) sum,
                one = in(reg) one,
                options(pure, nomem, nostack),
            );
        }
    }
    sum + count % 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_additions_has_every_link() {
        for count in [0, 1, 15, 16, 17, 1000] {
            assert_eq!(dependent_adds(count), count);
        }
    }
}
