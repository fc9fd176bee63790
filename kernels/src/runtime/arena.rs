//! A memory that counts what is allocated from it.

use super::account::MemoryAccount;
use super::buffer::Buffer;
use super::device::DeviceAllocator;
use super::error::KernelError;
use hwprofiles::units::Bytes;
use std::sync::Arc;

/// A named memory of limited capacity from which [`Buffer`]s are allocated.
///
/// With this account a run proves that it kept within its plan: every buffer of a device's memory
/// is allocated here, a buffer beyond the capacity is refused, and [`MemoryArena::peak`] is the
/// largest sum that was ever in use. Clones share one account. It counts the bytes asked for; the
/// operating system adds up to a page per buffer.
#[derive(Debug, Clone)]
pub struct MemoryArena {
    account: Arc<MemoryAccount>,
    /// The device that owns the memory; `None` for the host's.
    device: Option<Arc<dyn DeviceAllocator>>,
}

impl MemoryArena {
    /// An empty memory of the host.
    pub fn new(name: impl Into<String>, capacity: Bytes) -> Self {
        Self { account: Arc::new(MemoryAccount::new(name.into(), capacity)), device: None }
    }

    /// An empty memory of a device.
    pub(crate) fn on_device(name: String, capacity: Bytes, device: Arc<dyn DeviceAllocator>) -> Self {
        Self { account: Arc::new(MemoryAccount::new(name, capacity)), device: Some(device) }
    }

    /// Allocates `len` bytes: zeros on the host, any values on a GPU. Dropping the buffer returns
    /// them.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`] beyond the capacity; [`KernelError::Map`] or
    /// [`KernelError::Gpu`] where the system has no memory left.
    pub fn allocate(&self, len: usize) -> Result<Buffer, KernelError> {
        let sum = self.account.take(len)?;
        let account = Arc::clone(&self.account);
        let buffer = match &self.device {
            None => Buffer::counted(len, account),
            Some(device) => {
                Arc::clone(device).allocate(len).map(|bytes| Buffer::on_device(len, account, bytes))
            }
        };
        let buffer = buffer.inspect_err(|_| self.account.give_back(len))?;
        self.account.note_peak(sum);
        Ok(buffer)
    }

    /// Allocates `len` bytes and lets `fill` write them. For a GPU, `fill` writes a buffer of the
    /// host, which is then uploaded.
    ///
    /// # Errors
    /// Those of [`MemoryArena::allocate`] and of `fill`.
    pub fn filled<E: From<KernelError>>(
        &self,
        len: usize,
        fill: impl FnOnce(&mut Buffer) -> Result<(), E>,
    ) -> Result<Buffer, E> {
        let mut buffer = self.allocate(len)?;
        if self.device.is_none() {
            return fill(&mut buffer).map(|()| buffer);
        }
        let mut staging = Buffer::new(len)?;
        fill(&mut staging)?;
        buffer.upload(0, staging.bytes())?;
        Ok(buffer)
    }

    /// Its name, as in the machine file.
    pub fn name(&self) -> &str {
        self.account.name()
    }

    /// Its capacity.
    pub fn capacity(&self) -> Bytes {
        self.account.capacity()
    }

    /// Bytes of the buffers that are alive now.
    pub fn used(&self) -> Bytes {
        self.account.used()
    }

    /// The most bytes that were ever in use at once.
    pub fn peak(&self) -> Bytes {
        self.account.peak()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_allocated_and_dropped_balance_and_the_peak_stays() {
        let memory = MemoryArena::new("hbm", Bytes::new(100));
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
        let memory = MemoryArena::new("hbm", Bytes::new(100));
        let _held = memory.allocate(60).expect("fits");
        let error = memory.allocate(41).expect_err("one byte too many").to_string();
        assert_eq!(error, "memory 'hbm' is full: 41 B wanted, 60 B of 100 B in use");
        assert_eq!(memory.used(), Bytes::new(60), "a refused allocation counts nothing");
    }

    #[test]
    fn threads_together_never_exceed_the_capacity() {
        let memory = MemoryArena::new("hbm", Bytes::new(1000));
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
