//! Aligned, zeroed memory straight from the operating system.

use crate::cuda::{OnGpu, Pin};
use crate::{Error, Memory};
use bytemuck::{AnyBitPattern, NoUninit};
use hwprofiles::PageSize;
use hwprofiles::units::Bytes;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ptr::NonNull;

/// Size of a huge page on x86-64.
const HUGE_PAGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// Zero-initialised bytes, aligned to 4 KiB, or to 2 MiB and asking for huge pages from 2 MiB on.
///
/// Huge pages can double the bandwidth of a stream (one translation in 2 MiB instead of 512), so every
/// large buffer asks for them; whether the system gave them is [`Buffer::pages`].
///
/// A buffer of a GPU's memory ([`Memory::on_gpu`]) has an address and a length, and bytes that the host does not see: they
/// are sent by [`Buffer::upload`] and fetched by [`Buffer::read_back`].
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    mapping: NonNull<u8>,
    mapped: usize,
    memory: Option<Memory>,
    /// Where it is, if not the host's.
    pub(crate) gpu: Option<OnGpu>,
    /// What lets a GPU reach the host's.
    pub(crate) pin: Option<Pin>,
}

// SAFETY: a Buffer owns its mapping alone, like a Vec<u8>; shared references only read.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// How a buffer's bytes are mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// Bytes backed by 2 MiB pages.
    pub huge: Bytes,
    /// Bytes backed by any page; untouched bytes have none.
    pub resident: Bytes,
}

impl Buffer {
    /// Maps `len` bytes of zeros that no [`Memory`] accounts for.
    ///
    /// # Errors
    /// [`Error::Map`] where the system has none left.
    pub fn new(len: usize) -> Result<Self, Error> {
        Self::with_pages(len, PageSize::Huge)
    }

    /// As [`Buffer::new`], asking for huge pages or forbidding them.
    ///
    /// # Errors
    /// [`Error::Map`] where the system has none left.
    pub fn with_pages(len: usize, pages: PageSize) -> Result<Self, Error> {
        let align = if len >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        // Whole huge pages, and one more to slide the start onto a 2 MiB boundary: untouched, it costs nothing.
        let mapped = len.max(1).next_multiple_of(align) + if align == HUGE_PAGE { align } else { 0 };
        // SAFETY: an anonymous private mapping at an address of the system's choice disturbs nothing.
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
        let fail = || Error::Map { bytes: Bytes::new(len as u64), source: std::io::Error::last_os_error() };
        if mapping == libc::MAP_FAILED {
            return Err(fail());
        }
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(fail)?;
        let slide = mapping.as_ptr().align_offset(align);
        // SAFETY: slide < align, and the mapping is `align` longer than the rounded length where align > PAGE;
        // mmap's result is page-aligned, so the slide is 0 otherwise.
        let start = unsafe { mapping.add(slide) };
        if align == HUGE_PAGE {
            let advice = match pages {
                PageSize::Huge => libc::MADV_HUGEPAGE,
                PageSize::Base => libc::MADV_NOHUGEPAGE,
            };
            // SAFETY: the range lies inside the mapping. A refusal leaves the system's choice, which `pages` reports.
            unsafe { libc::madvise(start.as_ptr().cast(), len.next_multiple_of(align), advice) };
        }
        Ok(Self { start, len, mapping, mapped, memory: None, gpu: None, pin: None })
    }

    /// As [`Buffer::new`], its memory from one NUMA node and from no other. The node must have that much free: the
    /// kernel kills who touches bound memory that is not there.
    ///
    /// # Errors
    /// [`Error::Map`]; [`Error::Bind`] where the node does not exist or is not ours to use.
    pub fn on_node(len: usize, node: usize) -> Result<Self, Error> {
        let buffer = Self::new(len)?;
        let mut mask = vec![0u64; node / 64 + 1];
        mask[node / 64] = 1 << (node % 64);
        // The kernel counts one bit more than it reads.
        let bits = mask.len() * 64 + 1;
        // SAFETY: the range is the buffer's own mapping, whole pages and untouched; the mask has the bits it is said to.
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
            _ => Err(Error::Bind { node, source: std::io::Error::last_os_error() }),
        }
    }

    /// As [`Buffer::new`], returning its bytes to `memory` when dropped; `memory` has already counted them.
    pub(crate) fn counted(len: usize, memory: Memory) -> Result<Self, Error> {
        let mut buffer = Self::new(len)?;
        buffer.memory = Some(memory);
        Ok(buffer)
    }

    /// The same of a GPU's memory.
    pub(crate) fn elsewhere(len: usize, memory: Memory, gpu: OnGpu) -> Self {
        let (start, mapping) = (NonNull::dangling(), NonNull::dangling());
        Self { start, len, mapping, mapped: 0, memory: Some(memory), gpu: Some(gpu), pin: None }
    }

    /// Where the host's bytes begin.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
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
    /// Where they are a GPU's; so does whatever else reads or writes them here.
    pub fn bytes(&self) -> &[u8] {
        assert!(self.gpu.is_none(), "bytes in a GPU's memory are not seen from here");
        // SAFETY: start..start+len is mapped, initialised (zero pages) and lives as long as self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.gpu.is_none(), "bytes in a GPU's memory are not seen from here");
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

    /// Gives every page its physical memory now, near the calling thread, instead of at first use. A GPU's have it.
    pub fn touch(&mut self) {
        if self.gpu.is_some() {
            return;
        }
        for page in self.bytes_mut().chunks_mut(PAGE) {
            // A volatile store: an optimiser may drop a plain one of a value that is already there.
            let first = &mut page[0];
            // SAFETY: `first` is a valid exclusive reference; the value is its own.
            unsafe { std::ptr::write_volatile(first, *first) };
        }
    }

    /// The pages really obtained, as `/proc/self/smaps` tells; `None` where that cannot be read.
    ///
    /// Neighbouring mappings of equal kind are merged by the kernel; then this speaks of the merged one,
    /// scaled to this buffer's share.
    pub fn pages(&self) -> Option<Pages> {
        let address = self.start.as_ptr() as usize;
        let lines = BufReader::new(File::open("/proc/self/smaps").ok()?).lines().map_while(Result::ok);
        let mut here = None;
        let (mut huge, mut resident) = (0, None);
        for line in lines {
            let mut words = line.split_ascii_whitespace();
            let key = words.next()?;
            if let Some((low, high)) = key.split_once('-').filter(|_| !key.ends_with(':')) {
                if here.is_some() {
                    break;
                }
                let low = usize::from_str_radix(low, 16).ok()?;
                let high = usize::from_str_radix(high, 16).ok()?;
                here = (low..high).contains(&address).then_some(high - low);
            } else if here.is_some() {
                let mut kib = || words.next().and_then(|number| number.parse::<u64>().ok());
                match key {
                    "Rss:" => resident = kib(),
                    "AnonHugePages:" => huge = kib().unwrap_or(0),
                    _ => {}
                }
            }
        }
        let share = (self.mapped as f64 / here? as f64).min(1.0);
        let bytes = |kib: u64| Bytes::new((kib as f64 * 1024.0 * share) as u64);
        Some(Pages { huge: bytes(huge), resident: bytes(resident?) })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // No GPU reaches pages that are gone.
        self.pin = None;
        if self.gpu.take().is_none() {
            // SAFETY: the mapping is ours, whole, and nothing borrows from self any more.
            unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
        }
        if let Some(memory) = &self.memory {
            memory.give_back(self.len);
        }
    }
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
    fn who_forbids_huge_pages_gets_none() {
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
                Err(error) => assert!(matches!(error, Error::Bind { node: 0, .. }), "{error}"),
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
}
