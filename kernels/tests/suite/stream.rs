//! The bandwidth loops compute the right values, on every path and at lengths around their steps.

use kernels::stream::{self, StoreInstruction};
use kernels::{Buffer, Path, Pool, affinity};

const LENGTHS: [usize; 12] = [0, 1, 3, 4, 7, 8, 15, 16, 17, 63, 255, 1029];

fn pools() -> Vec<Pool> {
    let cores = affinity::available_cores();
    let cores = [cores[0], cores[cores.len() - 1]];
    let pool = |path| Pool::new(&cores).expect("our cores").with_path(path);
    Path::supported().into_iter().map(pool).collect()
}

#[test]
fn read_returns_the_sum_of_every_value_once() {
    for pool in pools() {
        for len in LENGTHS {
            let x: Vec<f64> = (1..=len).map(|i| i as f64).collect();
            assert_eq!(stream::read(&pool, &x), (len * (len + 1) / 2) as f64, "{} {len}", pool.path());
        }
    }
}

#[test]
fn write_copy_and_triad_set_every_value_and_no_other() {
    for pool in pools() {
        for store in [StoreInstruction::Ordinary, StoreInstruction::NonTemporal] {
            for len in LENGTHS {
                // The slice starts at the second value, so it is not aligned for a vector.
                let mut buffer = Buffer::new(8 * (len + 2)).expect("memory");
                let to = &mut buffer.view_mut::<f64>()[1..];
                let a: Vec<f64> = (0..len).map(|i| i as f64).collect();
                let b: Vec<f64> = (0..len).map(|i| 0.5 + i as f64).collect();
                stream::write(&pool, &mut to[..len], 3.0, store);
                assert!(to[..len].iter().all(|&x| x == 3.0) && to[len] == 0.0);
                stream::copy(&pool, &mut to[..len], &a, store);
                assert!(to[..len] == a && to[len] == 0.0);
                stream::triad(&pool, &mut to[..len], &a, &b, 2.0, store);
                assert!(
                    to[..len].iter().enumerate().all(|(i, &x)| x == 3.0 * i as f64 + 1.0) && to[len] == 0.0
                );
            }
        }
    }
}

#[test]
fn sums_of_one_to_three_arrays_set_every_value_and_no_other() {
    for pool in pools() {
        for store in [StoreInstruction::Ordinary, StoreInstruction::NonTemporal] {
            for len in LENGTHS {
                let mut buffer = Buffer::new(8 * (len + 2)).expect("memory");
                let to = &mut buffer.view_mut::<f64>()[1..];
                let [a, b, c] = [1.0, 100.0, 10_000.0]
                    .map(|factor| (0..len).map(|i| factor * i as f64).collect::<Vec<_>>());
                let mut check = |factor: f64, sum: &dyn Fn(&mut [f64])| {
                    sum(&mut to[..len]);
                    assert!((0..len).all(|i| to[i] == factor * i as f64) && to[len] == 0.0, "{factor} {len}");
                };
                check(1.0, &|to| stream::sum(&pool, to, [&a], store));
                check(101.0, &|to| stream::sum(&pool, to, [&a, &b], store));
                check(10_101.0, &|to| stream::sum(&pool, to, [&a, &b, &c], store));
            }
        }
    }
}

#[test]
fn a_ring_is_one_cycle_through_all_its_elements() {
    for (count, stride) in [(1, 1), (2, 1), (17, 1), (1000, 16), (4096, 3)] {
        let mut ring = vec![u32::MAX; count * stride];
        stream::make_ring(&mut ring, stride, 42);
        let mut seen = vec![false; count];
        let mut at = 0;
        for _ in 0..count {
            assert!(!std::mem::replace(&mut seen[at / stride], true), "{count} × {stride}: {at} twice");
            at = ring[at] as usize;
        }
        assert_eq!(at, 0);
        assert_eq!(stream::chase(&ring, count), 0);
        assert_eq!(stream::chase(&ring, 2 * count + 1), ring[0]);
        let middle = stream::chase(&ring, count / 2);
        assert_eq!(stream::chase_from(&ring, middle, count - count / 2), 0);
    }
}
