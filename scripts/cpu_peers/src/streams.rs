//! Fulcrum's memory loops beside STREAM's, compiled by gcc.

use crate::contest::{Contender, contest};
use kernels::stream::{self, StoreInstruction};
use kernels::{Buffer, Pool};
use std::cell::RefCell;

/// Values of one array: 256 MiB, many times the last-level cache.
const VALUES: usize = 32 << 20;
const FACTOR: f64 = 3.0;

unsafe extern "C" {
    fn stream_copy(c: *mut f64, a: *const f64, n: usize);
    fn stream_scale(b: *mut f64, c: *const f64, factor: f64, n: usize);
    fn stream_add(c: *mut f64, a: *const f64, b: *const f64, n: usize);
    fn stream_triad(a: *mut f64, b: *const f64, c: *const f64, factor: f64, n: usize);
    fn stream_sum(a: *const f64, n: usize) -> f64;
    fn stream_threads(cores: *const usize, threads: i32);
}

/// Sum, copy and triad by the threads of `pools`. All on the same arrays, in huge pages where the
/// system gives them.
pub fn compare(pools: &[Pool], runs: usize) {
    let threads = pools[0].members();
    pools[0].pin_caller().expect("our core");
    // SAFETY: the list has as many cores.
    unsafe { stream_threads(pools[0].cores().as_ptr(), threads as i32) };
    let array = |value: f64| {
        let mut buffer = Buffer::new(8 * VALUES).expect("memory");
        // First touched by the thread that will use it.
        stream::write(&pools[0], buffer.view_mut(), value, StoreInstruction::Ordinary);
        buffer
    };
    let (a, b, to) = (array(1.0), array(2.0), RefCell::new(array(0.0)));
    let (a, b) = (a.view::<f64>(), b.view::<f64>());
    let pages = to.borrow().pages().expect("/proc");
    println!("\narrays of {}, {} of them in huge pages", pages.resident, pages.huge);
    let gib = (8 * VALUES) as f64;
    let pool = &pools[pools.len() - 1];
    let title = |what: &str| format!("{what}, {threads} threads");
    let sums = vec![
        Contender::new("gcc sum", false, || {
            // SAFETY: (all of this file) the arrays have VALUES values, and nobody else uses `to`
            // meanwhile.
            assert_eq!(unsafe { stream_sum(a.as_ptr(), VALUES) }, VALUES as f64);
        }),
        Contender::new("ours", true, || assert_eq!(stream::read(pool, a), VALUES as f64)),
    ];
    contest(&title("read"), "GB/s", gib, sums, runs);

    let mut copies = vec![Contender::new("STREAM copy (gcc: memcpy)", false, || unsafe {
        stream_copy(to.borrow_mut().view_mut::<f64>().as_mut_ptr(), a.as_ptr(), VALUES)
    })];
    copies.push(Contender::new("STREAM scale", false, || unsafe {
        stream_scale(to.borrow_mut().view_mut::<f64>().as_mut_ptr(), a.as_ptr(), FACTOR, VALUES)
    }));
    for store in [StoreInstruction::Ordinary, StoreInstruction::NonTemporal] {
        copies.push(Contender::new(format!("ours, {store:?}"), true, move_copy(pool, &to, a, store)));
    }
    contest(&title("copy"), "GB/s", 2.0 * gib, copies, runs);
    assert_eq!(to.borrow().view::<f64>()[VALUES - 1], 1.0);

    let mut triads = vec![
        Contender::new("STREAM add", false, || unsafe {
            stream_add(to.borrow_mut().view_mut::<f64>().as_mut_ptr(), a.as_ptr(), b.as_ptr(), VALUES)
        }),
        Contender::new("STREAM triad", false, || unsafe {
            stream_triad(
                to.borrow_mut().view_mut::<f64>().as_mut_ptr(),
                a.as_ptr(),
                b.as_ptr(),
                FACTOR,
                VALUES,
            )
        }),
    ];
    for store in [StoreInstruction::Ordinary, StoreInstruction::NonTemporal] {
        let to = &to;
        let work = move || stream::triad(pool, to.borrow_mut().view_mut(), a, b, FACTOR, store);
        triads.push(Contender::new(format!("ours, {store:?}"), true, work));
    }
    contest(&title("triad"), "GB/s", 3.0 * gib, triads, runs);
    assert_eq!(to.borrow().view::<f64>()[VALUES / 2], 7.0);
}

fn move_copy<'a>(pool: &'a Pool, to: &'a RefCell<Buffer>, a: &'a [f64], store: StoreInstruction) -> impl FnMut() + 'a {
    move || stream::copy(pool, to.borrow_mut().view_mut(), a, store)
}
