//! The time of transfers between the host's memory and the GPU's.

use super::gpu::{Gpu, PATTERN};
use super::host_pages::HostPages;
use super::random::pattern;
use crate::cuda::driver::context::{Context, GpuEvent, GpuStream};
use crate::cuda::driver::device_memory::DeviceRange;
use crate::runtime::KernelError;
use hwprofiles::units::{Bytes, Seconds};
use hwprofiles::{DType, Direction, HostMemory};
use std::sync::Barrier;
use std::time::Instant;

impl Gpu {
    /// The time of `calls` transfers of `bytes` in each requested direction.
    pub(super) fn transfers(
        &mut self,
        direction: Direction,
        memory: HostMemory,
        bytes: Bytes,
        calls: usize,
    ) -> Result<Seconds, KernelError> {
        self.set_host(memory)?;
        self.arena.forget();
        let (len, half) = (bytes.get() as usize, self.arena.half());
        let device = &self.arena.memory;
        let Some((from, to)) = &mut self.host else { return Ok(Seconds::ZERO) };
        // Each transfer uses other bytes of both memories, as far as there are any.
        let places = (from.len() / len).max(1);
        let places = move |call: usize| call % places * len;
        // SAFETY: (both) this function waits for the streams. After an error, `set_host` and the
        // drop of the GPU wait, before the pages or the arena are used for anything else.
        let send = |i, stream: &GpuStream| unsafe {
            from.send(places(i), DeviceRange::new(device, places(i), len), stream)
        };
        // SAFETY: as above.
        let mut receive = |i, stream: &GpuStream| unsafe {
            to.receive(places(i), DeviceRange::new(device, half + places(i), len), stream)
        };
        match (memory, direction) {
            (HostMemory::Pinned, _) => {
                let (start, other, end) = (GpuEvent::new()?, GpuEvent::new()?, GpuEvent::new()?);
                self.stream.record(&start)?;
                self.second.follow(&start)?;
                // The directions take turns, because small transfers would end before the host has
                // enqueued all of one direction.
                for i in 0..calls {
                    if direction != Direction::ToHost {
                        send(i, &self.stream)?;
                    }
                    if direction != Direction::ToDevice {
                        receive(i, &self.second)?;
                    }
                }
                self.second.record(&other)?;
                self.stream.follow(&other)?;
                self.stream.record(&end)?;
                self.stream.wait()?;
                end.since(&start)
            }
            (HostMemory::Pageable, Direction::Both) => {
                let send = || (0..calls).try_for_each(|i| send(i, &self.stream)).and(self.stream.wait());
                let receive =
                    || (0..calls).try_for_each(|i| receive(i, &self.second)).and(self.second.wait());
                time_both(&self.context, send, receive)
            }
            // The host copies through the driver's own buffer, so the host's clock counts.
            (HostMemory::Pageable, _) => {
                let start = Instant::now();
                for i in 0..calls {
                    if direction == Direction::ToDevice {
                        send(i, &self.stream)
                    } else {
                        receive(i, &self.stream)
                    }?;
                }
                self.stream.wait()?;
                Ok(Seconds::new(start.elapsed().as_secs_f64()))
            }
        }
    }

    /// Prepares the host's pages for transfers.
    pub(super) fn set_host(&mut self, memory: HostMemory) -> Result<(), KernelError> {
        // This also waits for work that an earlier error left enqueued.
        self.stream.wait().and(self.second.wait())?;
        if self.host.is_none() {
            let (len, pattern) = (self.facts.largest_transfer.get() as usize, pattern(DType::Bf16, PATTERN));
            self.host = Some((HostPages::new(len, &pattern)?, HostPages::new(len, &pattern)?));
        }
        if let Some((from, to)) = &mut self.host {
            from.set_pinned(memory == HostMemory::Pinned)?;
            to.set_pinned(memory == HostMemory::Pinned)?;
        }
        Ok(())
    }
}

/// The host's time for `send` and `receive` at once, on a thread each, because a pageable transfer
/// keeps its thread busy.
fn time_both(
    context: &Context,
    send: impl FnOnce() -> Result<(), KernelError>,
    receive: impl FnOnce() -> Result<(), KernelError> + Send,
) -> Result<Seconds, KernelError> {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let bound = context.bind();
            barrier.wait();
            let start = Instant::now();
            bound.and_then(|()| receive()).map(|()| (start, Instant::now()))
        });
        barrier.wait();
        let start = Instant::now();
        let here = send().map(|()| (start, Instant::now()));
        let there = other.join().expect("a transfer does not panic");
        let ((start, end), (other_start, other_end)) = (here?, there?);
        Ok(Seconds::new((end.max(other_end) - start.min(other_start)).as_secs_f64()))
    })
}
