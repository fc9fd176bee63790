//! Operands between two pages that nobody may touch: a kernel that reads or writes beside such an
//! operand ends the program.

use bytemuck::Pod;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};

const PAGE: usize = 4096;

/// Values that begin right behind a forbidden page, or end right in front of one. Which of the two
/// changes from one operand of a test to the next, in an order that is the same in every run.
pub struct Fenced<T> {
    mapping: *mut u8,
    pages: usize,
    start: *mut T,
    len: usize,
}

impl<T: Pod> Fenced<T> {
    pub fn new(values: &[T]) -> Self {
        thread_local!(static STATE: Cell<u32> = const { Cell::new(1) });
        let state = STATE.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        STATE.set(state);
        Self::beside(values, state >> 31 == 0)
    }

    fn beside(values: &[T], at_end: bool) -> Self {
        let bytes = size_of_val(values);
        let pages = bytes.next_multiple_of(PAGE);
        // SAFETY: a new mapping disturbs nothing; all pages but the outer two are opened, and hold
        // the values wherever they begin.
        unsafe {
            let (private, nobody) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_NONE);
            let mapping = libc::mmap(std::ptr::null_mut(), pages + 2 * PAGE, nobody, private, -1, 0);
            assert!(mapping != libc::MAP_FAILED, "no memory");
            let open = mapping.cast::<u8>().add(PAGE);
            assert_eq!(libc::mprotect(open.cast(), pages, libc::PROT_READ | libc::PROT_WRITE), 0);
            let start = open.add(if at_end { pages - bytes } else { 0 }).cast::<T>();
            start.copy_from_nonoverlapping(values.as_ptr(), values.len());
            Self { mapping: mapping.cast(), pages, start, len: values.len() }
        }
    }
}

impl<T> Drop for Fenced<T> {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody else has.
        unsafe { libc::munmap(self.mapping.cast(), self.pages + 2 * PAGE) };
    }
}

impl<T> Deref for Fenced<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the values that `new` wrote, aligned since pages are whole numbers of them.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T> DerefMut for Fenced<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl<T: Pod> Clone for Fenced<T> {
    fn clone(&self) -> Self {
        Self::new(self)
    }
}

impl<'a, T> IntoIterator for &'a Fenced<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[test]
fn a_read_beside_an_operand_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let probe = "FULCRUM_FENCE_PROBE";
    if let Ok(offset) = std::env::var(probe) {
        let offset: isize = offset.parse().expect("a number");
        let fenced = Fenced::beside(&[1_u8; 100], offset > 0);
        // SAFETY: none; a read beside the operand shall fault.
        println!("read {}", unsafe { fenced.as_ptr().wrapping_offset(offset).read_volatile() });
        return;
    }
    let read = |offset: &str| {
        let mut program = std::process::Command::new(std::env::current_exe().expect("this program"));
        let name = "fence::a_read_beside_an_operand_ends_the_process";
        program.args([name, "--exact"]).env(probe, offset).output().expect("it starts").status.signal()
    };
    assert_eq!(["-1", "0", "99", "100"].map(read), [Some(libc::SIGSEGV), None, None, Some(libc::SIGSEGV)]);
}
