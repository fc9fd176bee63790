//! The time of calls of the kernels that run models.

use super::gpu::{Gpu, PATTERN};
use super::model_kernels::QueuedCalls;
use super::random::pattern;
use super::work::GpuWork;
use crate::cuda::driver::context::GpuEvent;
use crate::runtime::KernelError;
use hwprofiles::DType;
use hwprofiles::units::Seconds;
use std::time::Instant;

impl Gpu {
    /// The calls of `work`, with random operands. Callers give them back with
    /// [`Gpu::keep_model_calls`]; after an error their queue waits for its work when it is dropped.
    pub(super) fn take_model_calls(&mut self, work: GpuWork) -> Result<QueuedCalls, KernelError> {
        let refused = |reason: &String| KernelError::Gpu { what: work.to_string(), reason: reason.clone() };
        let model = self.model.as_mut().map_err(|reason| refused(reason))?;
        let calls = model.take(work, &self.arena)?;
        if self.arena.filled != Some(DType::Bf16) {
            self.arena.memory.fill(&pattern(DType::Bf16, PATTERN), &self.stream)?;
            self.arena.filled = Some(DType::Bf16);
        }
        Ok(calls)
    }

    /// Keeps calls for the next time.
    pub(super) fn keep_model_calls(&mut self, calls: QueuedCalls) {
        if let Ok(model) = &mut self.model {
            model.keep(calls);
        }
    }

    /// The time of `calls` calls of `work` as nodes of a replayed graph, in which each kernel waits
    /// for the one before it.
    pub(super) fn time_model_calls(&mut self, work: GpuWork, calls: usize) -> Result<Seconds, KernelError> {
        let mut queued = self.take_model_calls(work)?;
        queued.record(calls)?;
        let (flushed, start, end) = (GpuEvent::new()?, GpuEvent::new()?, GpuEvent::new()?);
        self.flush_l2()?;
        self.stream.record(&flushed)?;
        queued.queue.follow(&flushed)?;
        queued.queue.record(&start)?;
        queued.replay(calls)?;
        queued.queue.record(&end)?;
        queued.queue.wait()?;
        self.keep_model_calls(queued);
        end.since(&start)
    }
}

impl Gpu {
    /// The host's time to launch the kernels of `calls` calls of `work`.
    pub(super) fn time_launches(&mut self, work: GpuWork, calls: usize) -> Result<Seconds, KernelError> {
        let mut queued = self.take_model_calls(work)?;
        // The first call of a kernel loads it.
        queued.run()?;
        let start = Instant::now();
        queued.enqueue(calls)?;
        let launched = start.elapsed();
        queued.queue.wait()?;
        self.keep_model_calls(queued);
        Ok(Seconds::new(launched.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::stand_in;
    use super::super::work::SmallKernel;
    use super::*;
    use hwprofiles::units::Bytes;
    use hwprofiles::{AttentionShape, Phase};
    use std::fs;
    use std::process::Output;

    fn attention([batch, new_tokens, past_tokens]: [u64; 3]) -> AttentionShape {
        let phase = if new_tokens == 1 { Phase::Decode } else { Phase::Prefill };
        AttentionShape { phase, batch, new_tokens, past_tokens, heads: 4, kv_heads: 2, head_dim: 64 }
    }

    #[test]
    fn model_kernels_are_right_and_are_timed_or_it_is_said_what_is_missing() {
        let Ok(mut gpu) = Gpu::open(Bytes::new(1 << 20)) else { return };
        let shapes = [[1, 1, 31], [3, 1, 200], [2, 40, 0], [1, 17, 60]].map(attention);
        let works = SmallKernel::ALL.map(GpuWork::SmallKernel).into_iter();
        let packed = [(DType::Int4, 1), (DType::Q8_0, 9), (DType::Int8, 200)];
        let packed = packed.map(|(dtype, m)| GpuWork::PackedProduct { dtype, m, n: 64, k: 96 });
        let more = [GpuWork::LayerCalls, GpuWork::Mixture].into_iter().chain(packed);
        let works: Vec<_> = works.chain(shapes.map(GpuWork::Attention)).chain(more).collect();
        if let Some(reason) = gpu.facts().no_model_kernels.clone() {
            let error = gpu.time(works[0], 1).expect_err("it is missing").to_string();
            assert!(error.contains(&reason), "{error}");
            return println!("missing: {reason}");
        }
        for work in works {
            if let Some(check) = gpu.check(work).expect("it can be done") {
                assert!((check.got - check.wanted).abs() <= check.tolerance, "{work}: {check:?}");
            }
            for calls in [1, 1, 3, 1] {
                let time = gpu.time(work, calls).expect("it can be timed").get();
                // A stand-in on a busy machine, under a sanitizer, takes tenths of a second.
                assert!(time > 0.0 && time < 10.0, "{work}: {time} s");
            }
            // Other work may come between two questions.
            gpu.time(GpuWork::Copy(Bytes::new(1 << 20)), 1).expect("a copy");
        }
        let large = GpuWork::Attention(attention([1 << 20, 1, 1 << 20]));
        let refused = gpu.time(large, 1).expect_err("there is no room").to_string();
        assert!(refused.contains("too large") && refused.contains("decode of 1048576"), "{refused}");
        println!("all are right");
    }

    const TEST: &str = "cuda::measure::model_calls::tests::\
        model_kernels_are_right_and_are_timed_or_it_is_said_what_is_missing";

    fn text(output: &Output) -> String {
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
    }

    #[test]
    fn model_kernels_are_right_in_any_order_that_a_stand_in_runs_them() {
        let folder = stand_in::folder();
        for words in ["early", "late", "others"] {
            let output = stand_in::run_in(&folder, TEST, words);
            let text = text(&output);
            assert!(output.status.success() && text.contains("all are right"), "{words}: {text}");
        }
    }

    #[test]
    fn without_a_compiler_the_rest_of_the_gpu_is_measured() {
        let folder = stand_in::folder();
        for name in ["libnvrtc.so", "libnvrtc.so.12"] {
            fs::remove_file(folder.path().join(name)).expect("a link");
        }
        let output = stand_in::run_in(&folder, TEST, "early");
        let text = text(&output);
        assert!(output.status.success() && text.contains("missing: libnvrtc"), "{text}");
    }
}
