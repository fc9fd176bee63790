//! Memory that can be read as numbers and followed as a ring.

use crate::error::MeasureError;
use crate::operands::kernel_set::KernelSet;
use hwprofiles::{Bytes, PageSize};
use kernels::stream::{self, StoreInstruction};
use kernels::{Buffer, Pool};

/// Words from one element of a ring to the next: one element on each cache line.
pub(crate) const STRIDE: usize = 16;

/// Memory larger than the caches. The first word of each cache line names the next line of one
/// random cycle through all lines. Read as numbers, all values lie between 1 and 1 + 2⁻²⁰.
#[derive(Debug)]
pub(crate) struct ProbeMemory(Buffer);

impl ProbeMemory {
    /// Fills `buffer`. Each member of the pool touches its own part first.
    pub fn new(subject: &dyn KernelSet, pool: &Pool, mut buffer: Buffer) -> Self {
        subject.write(pool, buffer.view_mut(), 1.0, StoreInstruction::Ordinary);
        // The low half of a line's first 1.0, which stays a normal number.
        stream::make_ring(buffer.view_mut(), STRIDE, 1);
        Self(buffer)
    }

    /// A copy in other pages.
    pub fn copied(
        &self,
        subject: &dyn KernelSet,
        pool: &Pool,
        pages: PageSize,
    ) -> Result<Self, MeasureError> {
        let mut buffer = Buffer::with_pages(self.0.len(), pages)?;
        subject.copy(pool, buffer.view_mut(), self.0.view(), StoreInstruction::Ordinary);
        Ok(Self(buffer))
    }

    /// Its content as numbers.
    pub fn values(&self) -> &[f64] {
        self.0.view()
    }

    /// Its content as a ring for [`stream::chase`].
    pub fn ring(&self) -> &[u32] {
        self.0.view()
    }

    /// Its size.
    pub fn bytes(&self) -> Bytes {
        Bytes::new(self.0.len() as u64)
    }

    /// Bytes in huge pages, as the system reports; zero where it reports nothing.
    pub fn huge(&self) -> Bytes {
        // The system may count a neighbouring mapping too, so at most all of it.
        self.0.pages().map_or(Bytes::ZERO, |pages| pages.huge.min(self.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operands::kernel_set::RealKernels;
    use kernels::affinity::available_cores;

    #[test]
    fn it_is_one_ring_of_numbers_just_above_one_in_whatever_pages() {
        let pool = Pool::new(&available_cores()[..1]).unwrap();
        let field = ProbeMemory::new(&RealKernels, &pool, Buffer::new(1 << 16).unwrap());
        let copied = field.copied(&RealKernels, &pool, PageSize::Base).unwrap();
        for field in [&field, &copied] {
            let lines = field.ring().len() / STRIDE;
            assert_eq!(stream::chase(field.ring(), lines), 0);
            assert_ne!(stream::chase(field.ring(), lines / 2), 0);
            assert!(field.values().iter().all(|&x| (1.0..1.000001).contains(&x)));
            assert_eq!(field.bytes(), Bytes::new(1 << 16));
        }
        assert_eq!(copied.huge(), Bytes::ZERO);
    }
}
