//! Properties of a measurement of this very machine, whatever the machine and however busy it is.

use hwprofiles::{
    AttentionShape, Basis, Bytes, BytesPerSec, DType, Device, Host, LoadedLatency, LoopbackLimit, Machine,
    MachineParts, PageSize, Phase, Presence, Provenance, StreamKind,
};
use kernels::affinity::available_cores;
use microbench::{Depth, MeasuredHost, Options, Progress, measure};
use std::sync::{Mutex, OnceLock};

fn options() -> Options {
    Options { depth: Depth::Tiny, date: "2026-11-21".to_owned(), command: "fulcrum bench".to_owned() }
}

/// A measurement with all its progress (done, total, subject) and all saved hosts.
type Observed = (MeasuredHost, Vec<(usize, usize, String)>, Vec<Host>);

/// One tiny measurement for all tests that only look at it: several at once would compete for the
/// cores.
fn measured() -> Observed {
    static ONCE: OnceLock<Observed> = OnceLock::new();
    ONCE.get_or_init(measure_now).clone()
}

/// Measurements take turns for the same reason.
static TURN: Mutex<()> = Mutex::new(());

fn measure_now() -> Observed {
    let _turn = TURN.lock();
    let (mut steps, mut saved) = (Vec::new(), Vec::new());
    let mut progress = |p: Progress<'_>| steps.push((p.done, p.total, p.subject.to_owned()));
    let mut save = |host: &Host| {
        saved.push(host.clone());
        Ok(())
    };
    let measured = measure(&options(), &mut progress, &mut save).expect("this machine can be measured");
    (measured, steps, saved)
}

fn split(host: &Host) -> Option<Machine> {
    let limit = LoopbackLimit { memory: Bytes::new(1 << 20), bandwidth: BytesPerSec::new(4e9) };
    host.loopback.as_option()?;
    Some(MachineParts::from_host(host.clone()).with_loopback(limit).machine("split").expect("it composes"))
}

fn positive(what: &str, value: f64) {
    assert!(value.is_finite() && value > 0.0, "{what}: {value}");
}

#[test]
fn every_table_is_there_and_composes_alone_and_with_a_loopback() {
    let (MeasuredHost { host, .. }, ..) = measured();
    assert!(host.cpu.cores.iter().all(|core| available_cores().contains(core)));
    assert_eq!(matches!(host.loopback, Presence::Present(_)), host.cpu.cores.len() > 1);
    assert!(host.cxl == Presence::Absent);
    for team in [1, host.cpu.cores.len().saturating_sub(1).max(1), host.cpu.cores.len()] {
        for stream in [StreamKind::Read, StreamKind::Write, StreamKind::Copy, StreamKind::Triad] {
            assert!(host.dram.stream(stream, team).is_some_and(|curve| curve.at_largest().is_some()));
        }
    }
    assert!(host.dram.latency.as_ref().is_some_and(|curve| curve.points.len() > 1));
    let alone = MachineParts::from_host(host.clone()).machine("alone").expect("it composes");
    for machine in [Some(alone), split(&host)].into_iter().flatten() {
        machine.devices.iter().for_each(answers_everything);
    }
}

/// Every rate that a plan asks a device for is there, was measured, and is above zero.
fn answers_everything(device: &Device) {
    for weights in [DType::F32, DType::Bf16, DType::Int8, DType::Int4] {
        for m in [1, 3, 700] {
            let estimate = device.gemm_time(weights, m, 160, 64).expect("a rate");
            positive("product", estimate.time.get());
            assert_ne!(estimate.basis, Basis::Estimated);
        }
    }
    for kv in [DType::F32, DType::Bf16] {
        for (phase, new_tokens, past_tokens) in [(Phase::Decode, 1, 99), (Phase::Prefill, 20, 0)] {
            let (batch, heads, kv_heads, head_dim) = (2, 8, 2, 64);
            let shape = AttentionShape { phase, batch, new_tokens, past_tokens, heads, kv_heads, head_dim };
            let estimate = device.attention_time(kv, &shape).expect("a rate");
            positive("attention", estimate.time.get());
            assert_ne!(estimate.basis, Basis::Estimated);
        }
    }
    positive("element-wise", device.elementwise_time(Bytes::new(1000)).time.get());
    positive("launch", device.launch.value.get());
    positive("sync", device.sync.value.get());
}

#[test]
fn the_memory_is_known_under_load_by_mix_by_page_and_by_node_or_said_to_be_absent() {
    let (MeasuredHost { host, .. }, ..) = measured();
    let cores = host.cpu.cores.len();
    for team in &host.teams {
        positive("clock", team.frequency.as_option().expect("every team has a clock").value.get());
    }
    let loaded = host.dram.loaded_latency.as_option();
    assert_eq!(loaded.is_some(), cores > 1, "one core alone cannot be loaded by others");
    for point in loaded.iter().flat_map(|loaded| &loaded.points) {
        positive("latency under load", point.latency.get());
        assert_eq!(point.bandwidth > BytesPerSec::ZERO, point.percent > 0, "{point:?}");
    }
    let percents = |loaded: &LoadedLatency| loaded.points.iter().map(|p| p.percent).collect::<Vec<_>>();
    assert!(loaded.is_none_or(|loaded| percents(loaded).first() == Some(&0) && loaded.threads == cores - 1));
    assert!(loaded.is_none_or(|loaded| percents(loaded).last() == Some(&100)));
    let mixes = host.dram.mixes.as_option().expect("mixes need no more than one core");
    for (reads, writes) in [(0, 1), (1, 0), (1, 1), (2, 1), (3, 1)] {
        let all = mixes.points.iter().filter(|mix| (mix.reads, mix.writes) == (reads, writes));
        assert_eq!(all.count(), 1 + writes as usize, "{reads}:{writes}, each way of storing");
    }
    mixes.points.iter().for_each(|mix| positive("mix", mix.rate.get()));
    let modes = host.dram.pages.as_option().expect("pages need no more than one core");
    assert_eq!(modes.iter().map(|mode| mode.asked).collect::<Vec<_>>(), [PageSize::Base, PageSize::Huge]);
    assert_eq!(modes[0].huge.value, Bytes::ZERO, "who forbids huge pages gets none");
    modes.iter().for_each(|mode| positive("read and load", mode.read.value.get() * mode.latency.value.get()));
    let Some(numa) = host.numa.as_option() else { return };
    let with_cores = numa.nodes.iter().filter(|node| !node.cores.is_empty()).count();
    let with_memory = numa.nodes.iter().filter(|node| node.capacity > Bytes::ZERO).count();
    assert_eq!(numa.paths.len(), with_cores * with_memory, "a full matrix");
    for rates in numa.paths.iter().filter_map(|path| path.measured.as_option()) {
        positive("path", rates.read.value.get() * rates.write.value.get() * rates.latency.value.get());
    }
}

#[test]
fn attention_is_known_for_one_four_and_eight_heads_over_each_of_the_caches() {
    let (MeasuredHost { host, .. }, ..) = measured();
    for (team, kv) in host.teams.iter().flat_map(|team| [DType::F32, DType::Bf16].map(|kv| (team, kv))) {
        let shapes: Vec<_> = team.attention[&kv].points().iter().map(|point| point.shape).collect();
        for (phase, group) in
            [Phase::Prefill, Phase::Decode].into_iter().flat_map(|p| [1, 4, 8].map(|g| (p, g)))
        {
            for head_dim in [64, 128] {
                let wanted = |s: &AttentionShape| {
                    (s.phase, s.heads / s.kv_heads, s.head_dim) == (phase, group, head_dim)
                };
                assert!(
                    shapes.iter().any(wanted),
                    "{phase} of {group} heads of {head_dim} by {}",
                    team.threads
                );
            }
        }
    }
}

#[test]
fn ceilings_stand_beside_each_other_for_what_this_processor_has() {
    let (MeasuredHost { host, .. }, ..) = measured();
    for team in [host.team(1), host.teams.last()].into_iter().flatten() {
        let ways = |dtype| team.ceilings.get(&dtype).into_iter().flatten();
        let avx2 = host.cpu.features.iter().any(|feature| feature == "avx2");
        assert_eq!(ways(DType::F32).any(|(name, _)| name == "avx2"), avx2);
        let tiles = host.cpu.features.iter().any(|feature| feature == "amx_bf16");
        assert!(
            tiles || !ways(DType::Bf16).any(|(name, _)| name == "amx"),
            "no number for what is not there"
        );
        assert_eq!(
            team.crossover.contains_key(&DType::Bf16),
            ways(DType::Bf16).any(|(name, _)| name == "amx")
        );
        for (name, ceilings) in [DType::F32, DType::Bf16, DType::Int8, DType::Int4].into_iter().flat_map(ways)
        {
            let all = [&ceilings.resident, &ceilings.cached, &ceilings.streamed];
            let present: Vec<_> = all.into_iter().filter_map(Presence::as_option).collect();
            assert!(!present.is_empty(), "{name}");
            present.iter().for_each(|rate| positive(name, rate.get()));
        }
    }
}

#[test]
fn every_number_was_measured_by_the_command_on_the_day() {
    let (MeasuredHost { host, .. }, ..) = measured();
    let mut sources = vec![&host.dram.capacity.source];
    sources.extend(host.dram.bandwidth.iter().map(|stream| &stream.curve.source));
    sources.extend(host.dram.latency.iter().map(|curve| &curve.source));
    for team in &host.teams {
        sources.extend([&team.launch.source, &team.elementwise.source]);
        sources.extend(team.frequency.as_option().map(|clock| &clock.source));
        sources.extend(team.gemm.values().map(|rates| &rates.source));
        sources.extend(team.attention.values().map(|rates| &rates.source));
    }
    if let Presence::Present(loopback) = &host.loopback {
        sources.extend([&loopback.sync.source, &loopback.latency.source, &loopback.bandwidth.source]);
        positive("β", loopback.bandwidth.value.get());
    }
    for source in sources {
        let Provenance::Measured { date, command, spread } = source else { panic!("{source}") };
        assert!(date == "2026-11-21" && command.starts_with("fulcrum bench"), "{source}");
        assert!(spread.is_finite() && *spread >= 0.0, "{source}");
    }
    let streams = &host.dram.bandwidth;
    let noted = streams.iter().all(|stream| stream.curve.source.to_string().contains("2 MiB pages"));
    assert!(noted, "the page mode is recorded where it matters");
}

#[test]
fn whatever_was_saved_is_a_valid_host_file_and_the_last_one_is_the_result() {
    let (MeasuredHost { host, .. }, _, saved) = measured();
    assert!(saved.len() > 2, "it saves as it goes");
    for partial in &saved {
        let text = partial.to_yaml();
        assert_eq!(Host::from_yaml(&text, "partial.yaml").as_ref(), Ok(partial), "{text}");
        MachineParts::from_host(partial.clone()).machine("partial").expect("it composes");
        split(partial);
    }
    assert_eq!(saved.last(), Some(&host));
}

#[test]
fn progress_goes_on_without_a_step_back_and_reaches_the_end_last() {
    let (_, steps, _) = measured();
    assert!(steps.is_sorted_by_key(|(done, ..)| *done));
    let (last, before) = steps.split_last().expect("there is progress");
    assert_eq!(last.0, last.1);
    assert!(before.iter().all(|(done, of, what)| done < of && !what.is_empty()), "{steps:?}");
}

#[test]
fn the_caller_may_run_where_it_could_before() {
    let before = available_cores();
    measure_now();
    assert_eq!(available_cores(), before);
}

#[test]
fn what_cannot_be_saved_ends_the_measurement_with_its_error() {
    let _turn = TURN.lock();
    let mut fail = |_: &Host| hwprofiles::write_atomically("/proc/no/such/folder/host.yaml", "");
    let error = measure(&options(), &mut |_| {}, &mut fail).expect_err("nothing can be written there");
    assert!(error.to_string().contains("/proc/no/such"), "{error}");
}
