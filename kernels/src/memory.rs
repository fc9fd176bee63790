//! A memory that knows how much it holds.

use crate::cuda::Accelerator;
use crate::{Buffer, Error};
use hwprofiles::units::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A named memory of limited capacity from which [`Buffer`]s are allocated.
///
/// This is the account by which a run proves that it kept within a plan: every buffer of a device's
/// memory is allocated here, a buffer beyond the capacity is refused, and [`Memory::peak`] remembers the
/// most that was ever in use. Clones are handles on the same account. It counts the bytes asked for;
/// the operating system adds up to a page per buffer.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Account>);

#[derive(Debug)]
struct Account {
    name: String,
    capacity: u64,
    used: AtomicU64,
    peak: AtomicU64,
    /// Whose memory it is, where that is not the host's.
    gpu: Option<Arc<Accelerator>>,
}

impl Memory {
    /// An empty memory of the host.
    pub fn new(name: impl Into<String>, capacity: Bytes) -> Self {
        Self::of(name.into(), capacity, None)
    }

    /// An empty memory of a GPU.
    pub fn on_gpu(name: impl Into<String>, capacity: Bytes, gpu: Arc<Accelerator>) -> Self {
        Self::of(name.into(), capacity, Some(gpu))
    }

    fn of(name: String, capacity: Bytes, gpu: Option<Arc<Accelerator>>) -> Self {
        let (used, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Arc::new(Account { name, capacity: capacity.get(), used, peak, gpu }))
    }

    /// Allocates `len` bytes, of zeros on the host and of anything on a GPU; dropping the buffer returns them.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] beyond the capacity, [`Error::Map`] or [`Error::Gpu`] where the system has none left.
    pub fn allocate(&self, len: usize) -> Result<Buffer, Error> {
        let account = &*self.0;
        let fits = |used: u64| used.checked_add(len as u64).filter(|&sum| sum <= account.capacity);
        match account.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Err(used) => Err(Error::OutOfMemory {
                memory: account.name.clone(),
                wanted: Bytes::new(len as u64),
                used: Bytes::new(used),
                capacity: self.capacity(),
            }),
            Ok(before) => {
                let buffer = match &account.gpu {
                    None => Buffer::counted(len, self.clone()),
                    Some(gpu) => Buffer::on_gpu(len, self.clone(), gpu),
                };
                let buffer = buffer.inspect_err(|_| self.give_back(len))?;
                account.peak.fetch_max(before + len as u64, Ordering::Relaxed);
                Ok(buffer)
            }
        }
    }

    /// Allocates `len` bytes that `fill` writes; for a GPU it writes them on the host, from where they are sent.
    ///
    /// # Errors
    /// As [`Memory::allocate`], and those of `fill`.
    pub fn filled<E: From<Error>>(
        &self,
        len: usize,
        fill: impl FnOnce(&mut Buffer) -> Result<(), E>,
    ) -> Result<Buffer, E> {
        let mut buffer = self.allocate(len)?;
        if self.0.gpu.is_none() {
            return fill(&mut buffer).map(|()| buffer);
        }
        let mut here = Buffer::new(len)?;
        fill(&mut here)?;
        buffer.upload(0, here.bytes())?;
        Ok(buffer)
    }

    /// Its name, as in the machine file.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// All it has.
    pub fn capacity(&self) -> Bytes {
        Bytes::new(self.0.capacity)
    }

    /// Bytes of the buffers alive now.
    pub fn used(&self) -> Bytes {
        Bytes::new(self.0.used.load(Ordering::Relaxed))
    }

    /// The most bytes that were ever in use at once.
    pub fn peak(&self) -> Bytes {
        Bytes::new(self.0.peak.load(Ordering::Relaxed))
    }

    pub(crate) fn give_back(&self, len: usize) {
        self.0.used.fetch_sub(len as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_allocated_and_dropped_balance_and_the_peak_stays() {
        let memory = Memory::new("hbm", Bytes::new(100));
        let a = memory.allocate(60).expect("fits");
        let b = memory.allocate(40).expect("fits exactly");
        assert_eq!(memory.used(), Bytes::new(100));
        drop(a);
        assert_eq!((memory.used(), memory.peak()), (Bytes::new(40), Bytes::new(100)));
        drop(b);
        assert_eq!(memory.used(), Bytes::ZERO);
        assert_eq!(memory.peak(), Bytes::new(100));
    }

    #[test]
    fn an_allocation_beyond_the_capacity_names_memory_wanted_used_and_capacity() {
        let memory = Memory::new("hbm", Bytes::new(100));
        let _held = memory.allocate(60).expect("fits");
        let error = memory.allocate(41).expect_err("one byte too many").to_string();
        assert_eq!(error, "memory 'hbm' is full: 41 B wanted, 60 B of 100 B in use");
        assert_eq!(memory.used(), Bytes::new(60), "a refused allocation counts nothing");
    }

    #[test]
    fn threads_together_never_exceed_the_capacity() {
        let memory = Memory::new("hbm", Bytes::new(1000));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let kept: Vec<_> = (0..8).map_while(|_| memory.allocate(97).ok()).collect();
                        assert!(memory.used() <= memory.capacity());
                        drop(kept);
                    }
                });
            }
        });
        assert_eq!(memory.used(), Bytes::ZERO);
        assert!(memory.peak() <= memory.capacity() && memory.peak() >= Bytes::new(97 * 8));
    }
}
