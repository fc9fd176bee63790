//! Aligned, zeroed memory straight from the operating system.

use super::account::MemoryAccount;
use super::device::{DeviceBytes, PageLock};
use super::error::KernelError;
use bytemuck::{AnyBitPattern, NoUninit, Pod};
use hwprofiles::PageSize;
use hwprofiles::units::Bytes;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// Size of a huge page on x86-64.
const HUGE_PAGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// Zero-initialised bytes, aligned to 4 KiB. From 2 MiB on they are aligned to 2 MiB and ask for
/// huge pages.
///
/// Huge pages can double the bandwidth of a stream: one translation covers 2 MiB instead of 4 KiB.
/// So every large buffer asks for them; [`Buffer::pages`] tells whether the system gave them.
///
/// A buffer in a GPU's memory has an address and a length, but the host does not see its bytes:
/// [`Buffer::upload`] writes them and [`Buffer::read_back`] reads them.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    mapping: NonNull<u8>,
    mapped: usize,
    account: Option<Arc<MemoryAccount>>,
    /// The bytes, where they are a device's and not the host's.
    device: Option<Box<dyn DeviceBytes>>,
    /// Keeps the host's pages locked for a device.
    lock: Option<Box<dyn PageLock>>,
}

// SAFETY: a Buffer owns its mapping alone, like a Vec<u8>; shared references only read.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// The pages behind a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageBacking {
    /// Bytes backed by 2 MiB pages.
    pub huge: Bytes,
    /// Bytes backed by any page; untouched bytes have none.
    pub resident: Bytes,
}

impl Buffer {
    /// Maps `len` bytes of zeros that no arena counts.
    ///
    /// # Errors
    /// [`KernelError::Map`] where the system has no such memory.
    pub fn new(len: usize) -> Result<Self, KernelError> {
        Self::with_pages(len, PageSize::Huge)
    }

    /// As [`Buffer::new`], asking for huge pages or forbidding them.
    ///
    /// # Errors
    /// [`KernelError::Map`] where the system has no such memory.
    pub fn with_pages(len: usize, pages: PageSize) -> Result<Self, KernelError> {
        let fail = |source| KernelError::Map { bytes: Bytes::new(len as u64), source };
        let align = if len >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        // Whole huge pages, and one more to move the start onto a 2 MiB boundary. Untouched pages
        // cost nothing.
        let slack = if align == HUGE_PAGE { align } else { 0 };
        let mapped = len.max(1).checked_next_multiple_of(align).and_then(|len| len.checked_add(slack));
        let mapped = mapped.ok_or_else(|| fail(std::io::Error::from_raw_os_error(libc::ENOMEM)))?;
        // SAFETY: an anonymous private mapping at an address of the system's choice disturbs
        // nothing.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let refused = || fail(std::io::Error::last_os_error());
        if mapping == libc::MAP_FAILED {
            return Err(refused());
        }
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(refused)?;
        let slide = mapping.as_ptr().align_offset(align);
        // SAFETY: where align > PAGE, slide < align and the mapping is `align` longer than the
        // rounded length. Otherwise the slide is 0, because mmap's result is page-aligned.
        let start = unsafe { mapping.add(slide) };
        if align == HUGE_PAGE {
            let advice = match pages {
                PageSize::Huge => libc::MADV_HUGEPAGE,
                PageSize::Base => libc::MADV_NOHUGEPAGE,
            };
            // SAFETY: the range lies inside the mapping. If the call is refused, the system chooses
            // the pages, and `pages` reports which.
            unsafe { libc::madvise(start.as_ptr().cast(), len.next_multiple_of(align), advice) };
        }
        Ok(Self { start, len, mapping, mapped, account: None, device: None, lock: None })
    }

    /// As [`Buffer::new`], with all pages on one NUMA node. The node must have that much free
    /// memory: the kernel kills a process that touches bound memory which is not there.
    ///
    /// # Errors
    /// [`KernelError::Map`]; [`KernelError::Bind`] where the node does not exist or is not ours to
    /// use.
    pub fn on_node(len: usize, node: usize) -> Result<Self, KernelError> {
        let buffer = Self::new(len)?;
        let mut mask = vec![0u64; node / 64 + 1];
        mask[node / 64] = 1 << (node % 64);
        // The kernel counts one bit more than it reads.
        let bits = mask.len() * 64 + 1;
        // SAFETY: the range is the buffer's own mapping, whole pages and untouched; the mask has
        // `bits` bits.
        let status = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                buffer.start.as_ptr(),
                buffer.len.max(1).next_multiple_of(PAGE),
                libc::MPOL_BIND,
                mask.as_ptr(),
                bits,
                0,
            )
        };
        match status {
            0 => Ok(buffer),
            _ => Err(KernelError::Bind { node, source: std::io::Error::last_os_error() }),
        }
    }

    /// As [`Buffer::new`], for bytes that `account` has counted; dropping the buffer returns them.
    pub(super) fn counted(len: usize, account: Arc<MemoryAccount>) -> Result<Self, KernelError> {
        let mut buffer = Self::new(len)?;
        buffer.account = Some(account);
        Ok(buffer)
    }

    /// A buffer over a device's bytes, which `account` has counted.
    pub(super) fn on_device(len: usize, account: Arc<MemoryAccount>, bytes: Box<dyn DeviceBytes>) -> Self {
        let (start, mapping) = (NonNull::dangling(), NonNull::dangling());
        Self { start, len, mapping, mapped: 0, account: Some(account), device: Some(bytes), lock: None }
    }

    /// Where the host's bytes begin.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The address of the first byte for a device: its own, or that of locked host pages.
    ///
    /// # Panics
    /// Where no device reaches the buffer.
    pub(crate) fn device_address(&self) -> u64 {
        match &self.device {
            Some(bytes) => bytes.address(),
            None => {
                assert!(self.lock.is_some() || self.is_empty(), "host memory that no GPU reaches");
                self.start() as u64
            }
        }
    }

    /// Whether the host's pages are locked for a device.
    pub(crate) fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    /// Keeps `lock` until the buffer is dropped.
    pub(crate) fn set_lock(&mut self, lock: Box<dyn PageLock>) {
        self.lock = Some(lock);
    }

    /// Whether the bytes are in a GPU's memory.
    pub fn is_on_gpu(&self) -> bool {
        self.device.is_some()
    }

    /// Writes `bytes` from `offset` on, wherever the buffer is.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    ///
    /// # Panics
    /// Where the range is not inside the buffer.
    pub fn upload(&mut self, offset: usize, bytes: &[u8]) -> Result<(), KernelError> {
        match &self.device {
            Some(to) => to.upload(offset, bytes),
            None => {
                self.bytes_mut()[offset..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Some values of type `T`, wherever the buffer is. Work that writes them must have finished.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    ///
    /// # Panics
    /// Where the range is not inside the buffer.
    pub fn read_back<T: Pod>(&self, range: Range<usize>) -> Result<Vec<T>, KernelError> {
        let Some(from) = &self.device else {
            let bytes = &self.bytes()[range.start * size_of::<T>()..range.end * size_of::<T>()];
            return Ok(to_values(bytes));
        };
        let (at, len) = (range.start * size_of::<T>(), range.len() * size_of::<T>());
        from.download(at, len).map(|bytes| to_values(&bytes))
    }

    /// Length in bytes, as asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    ///
    /// # Panics
    /// Where the bytes are in a GPU's memory. All methods that read or write them on the host do.
    pub fn bytes(&self) -> &[u8] {
        assert!(self.device.is_none(), "bytes in a GPU's memory are not seen from here");
        // SAFETY: start..start+len is mapped, initialised (zero pages) and lives as long as self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.device.is_none(), "bytes in a GPU's memory are not seen from here");
        // SAFETY: as in `bytes`, and &mut self makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The bytes as values of `T`; a remainder shorter than one value is left out.
    pub fn view<T: AnyBitPattern>(&self) -> &[T] {
        let whole = self.len - self.len % size_of::<T>();
        bytemuck::cast_slice(&self.bytes()[..whole])
    }

    /// The bytes as values of `T`, to write; a remainder shorter than one value is left out.
    pub fn view_mut<T: AnyBitPattern + NoUninit>(&mut self) -> &mut [T] {
        let whole = self.len - self.len % size_of::<T>();
        bytemuck::cast_slice_mut(&mut self.bytes_mut()[..whole])
    }

    /// Gives every page its physical memory now, near the calling thread, instead of at first use.
    /// Memory of a GPU has it already.
    pub fn touch(&mut self) {
        if self.device.is_some() {
            return;
        }
        for page in self.bytes_mut().chunks_mut(PAGE) {
            // A volatile store, because an optimiser may drop a plain store of the value that is
            // already there.
            let first = &mut page[0];
            // SAFETY: `first` is a valid exclusive reference; the value is its own.
            unsafe { std::ptr::write_volatile(first, *first) };
        }
    }

    /// The pages that the system gave, from `/proc/self/smaps`; `None` where that cannot be read.
    ///
    /// The kernel merges neighbouring mappings of one kind. The result is then this buffer's share
    /// of the merged mapping.
    pub fn pages(&self) -> Option<PageBacking> {
        let address = self.start.as_ptr() as usize;
        let lines = BufReader::new(File::open("/proc/self/smaps").ok()?).lines().map_while(Result::ok);
        let mut mapping_len = None;
        let (mut huge, mut resident) = (0, None);
        for line in lines {
            let mut words = line.split_ascii_whitespace();
            let key = words.next()?;
            if let Some((low, high)) = key.split_once('-').filter(|_| !key.ends_with(':')) {
                if mapping_len.is_some() {
                    break;
                }
                let low = usize::from_str_radix(low, 16).ok()?;
                let high = usize::from_str_radix(high, 16).ok()?;
                mapping_len = (low..high).contains(&address).then_some(high - low);
            } else if mapping_len.is_some() {
                let mut kib = || words.next().and_then(|number| number.parse::<u64>().ok());
                match key {
                    "Rss:" => resident = kib(),
                    "AnonHugePages:" => huge = kib().unwrap_or(0),
                    _ => {}
                }
            }
        }
        let share = (self.mapped as f64 / mapping_len? as f64).min(1.0);
        let bytes = |kib: u64| Bytes::new((kib as f64 * 1024.0 * share) as u64);
        Some(PageBacking { huge: bytes(huge), resident: bytes(resident?) })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The pages must not be locked any more when they are unmapped.
        self.lock = None;
        if self.device.take().is_none() {
            // SAFETY: the mapping is whole and ours, and nothing borrows from self any more.
            unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
        }
        if let Some(account) = &self.account {
            account.give_back(self.len);
        }
    }
}

fn to_values<T: Pod>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_buffer_is_zero_and_aligned_at_every_awkward_length() {
        for len in [0, 1, 63, 64, PAGE - 1, PAGE, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE + 5]
        {
            let mut buffer = Buffer::new(len).expect("memory");
            assert_eq!(buffer.len(), len);
            assert!(buffer.bytes().iter().all(|&byte| byte == 0));
            let align = if len >= HUGE_PAGE { HUGE_PAGE } else { 64 };
            assert_eq!(buffer.bytes().as_ptr() as usize % align, 0, "length {len}");
            buffer.bytes_mut().fill(7);
            buffer.touch();
            assert!(buffer.bytes().iter().all(|&byte| byte == 7), "touching keeps the contents");
        }
    }

    #[test]
    fn a_view_leaves_out_the_bytes_of_an_incomplete_value() {
        let mut buffer = Buffer::new(11).expect("memory");
        buffer.view_mut::<f32>()[1] = 1.0;
        assert_eq!(buffer.view::<f32>(), [0.0, 1.0]);
        assert_eq!(buffer.view::<u16>().len(), 5);
    }

    #[test]
    fn a_buffer_that_forbids_huge_pages_gets_none() {
        let mut buffer = Buffer::with_pages(8 * HUGE_PAGE, PageSize::Base).expect("memory");
        buffer.touch();
        let pages = buffer.pages().expect("Linux has /proc/self/smaps");
        assert_eq!(pages.huge, Bytes::ZERO, "{pages:?}");
        assert!(pages.resident >= Bytes::new(7 * HUGE_PAGE as u64), "{pages:?}");
    }

    #[test]
    fn memory_of_a_node_is_ordinary_memory_and_no_memory_comes_from_nowhere() {
        for len in [1, 3 * HUGE_PAGE + 5] {
            // A container may forbid the call altogether; a machine without NUMA does not know it.
            match Buffer::on_node(len, 0) {
                Ok(mut buffer) => {
                    buffer.bytes_mut().fill(3);
                    assert!(buffer.bytes().iter().all(|&byte| byte == 3));
                }
                Err(error) => assert!(matches!(error, KernelError::Bind { node: 0, .. }), "{error}"),
            }
        }
        let error = Buffer::on_node(1, 1000).expect_err("there is no such node").to_string();
        assert!(error.contains("NUMA node 1000"), "{error}");
    }

    #[test]
    fn touched_pages_are_resident() {
        let mut buffer = Buffer::new(8 * HUGE_PAGE).expect("memory");
        buffer.touch();
        let pages = buffer.pages().expect("Linux has /proc/self/smaps");
        assert!(pages.resident >= Bytes::new(7 * HUGE_PAGE as u64), "{pages:?}");
        assert!(pages.huge <= pages.resident);
    }

    #[test]
    fn a_length_that_overflows_when_it_is_rounded_up_is_refused() {
        for len in [usize::MAX, usize::MAX - 100, usize::MAX - 3 * HUGE_PAGE, isize::MAX as usize] {
            let error = Buffer::new(len).expect_err("no machine has it");
            assert!(matches!(error, KernelError::Map { .. }), "{len}: {error}");
        }
    }
}
