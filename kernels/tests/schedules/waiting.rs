//! The pool's and the flag's protocols in thousands of orders of their threads.

use super::futex::Word;
use super::team::Team;
use crate::Flag;
use shuttle::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[path = "scheduled_word.rs"]
mod scheduled_word;

use scheduled_word::{ScheduledWord, explore};

/// Runs `body` with a team whose other members serve, and dismisses it.
fn with_team(members: usize, body: impl Fn(&Team<ScheduledWord>)) {
    let team = Arc::new(Team::<ScheduledWord>::new(members));
    let serve = |member| {
        let team = Arc::clone(&team);
        thread::spawn(move || team.serve(member))
    };
    let threads: Vec<_> = (1..members).map(serve).collect();
    body(&team);
    team.dismiss();
    threads.into_iter().for_each(|thread| thread.join().expect("members do not panic"));
}

#[test]
fn every_member_does_every_task_once_in_any_order() {
    explore(2000, || {
        with_team(3, |team| {
            for round in 1..=3 {
                // Plain memory that ends with the round: a late member would write to a dead frame.
                let counts = [const { AtomicUsize::new(0) }; 3];
                team.run(&|member, members| {
                    assert_eq!(members, 3);
                    thread::yield_now();
                    counts[member].fetch_add(round, Ordering::Relaxed);
                });
                assert_eq!(counts.map(AtomicUsize::into_inner), [round; 3]);
            }
        });
    });
}

#[test]
fn a_members_panic_reaches_the_caller_in_any_order() {
    explore(1000, || {
        with_team(3, |team| {
            for guilty in [0, 2] {
                let result = catch_unwind(AssertUnwindSafe(|| {
                    team.run(&|member, _| {
                        if member == guilty {
                            std::panic::resume_unwind(Box::new(member));
                        }
                    });
                }));
                let panic = result.expect_err("the panic arrives");
                assert_eq!(panic.downcast_ref(), Some(&guilty));
            }
            let count = AtomicUsize::new(0);
            team.run(&|_, _| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 3);
        });
    });
}

#[test]
fn no_waiter_of_a_flag_is_forgotten_in_any_order() {
    explore(2000, || {
        let (flag, value) = (Arc::new(Flag::<ScheduledWord>::default()), Arc::new(AtomicUsize::new(0)));
        let wait = |asleep: bool| {
            let (flag, value) = (Arc::clone(&flag), Arc::clone(&value));
            thread::spawn(move || {
                if asleep {
                    flag.wait_asleep()
                } else {
                    flag.wait()
                }
                assert_eq!(value.load(Ordering::Relaxed), 42);
            })
        };
        let threads = [wait(false), wait(true), wait(true)];
        value.store(42, Ordering::Relaxed);
        flag.set();
        threads.into_iter().for_each(|thread| thread.join().expect("it saw what was written"));
    });
}

#[test]
fn a_pair_of_flags_hands_a_turn_back_and_forth_in_any_order() {
    explore(1000, || {
        let flags = Arc::new([Flag::<ScheduledWord>::default(), Flag::default()]);
        let turns = Arc::new(AtomicUsize::new(0));
        let (others, counted) = (Arc::clone(&flags), Arc::clone(&turns));
        let other = thread::spawn(move || {
            let [ping, pong] = &*others;
            for turn in 0..4 {
                ping.wait();
                ping.clear();
                assert_eq!(counted.fetch_add(1, Ordering::Relaxed), 2 * turn);
                pong.set();
            }
        });
        let [ping, pong] = &*flags;
        for turn in 0..4 {
            ping.set();
            pong.wait_asleep();
            pong.clear();
            assert_eq!(turns.fetch_add(1, Ordering::Relaxed), 2 * turn + 1);
        }
        other.join().expect("the turns are right");
    });
}
