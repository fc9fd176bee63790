//! The loop that shows how fast a core's clock really runs.

/// `count` additions of which each waits for the one before, in so many cycles; returns `count`. What that takes tells
/// the clock's real frequency, which no register of a virtual machine does.
pub fn dependent_adds(count: u64) -> u64 {
    let one = std::hint::black_box(1u64);
    let mut sum = 0u64;
    // Of a register and not of a constant: the latest cores fold chains of constants. Sixteen in a row hide the loop.
    for _ in 0..count / 16 {
        // SAFETY: it changes nothing but `sum` and the flags.
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
