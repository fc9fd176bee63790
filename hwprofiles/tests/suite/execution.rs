//! What an engine adds to a machine.

use hwprofiles::{
    AttentionShape, Bytes, BytesPerSec, Composition, DType, Device, DeviceKind, EngineExecution, Library,
    Machine, MemoryKind, Phase, Profile, Seconds, Sourced, yaml,
};

fn engine(text: &str) -> EngineExecution {
    yaml::read(text, "engine.yaml").unwrap()
}

/// Four RTX 4090 in a desktop, or what a scenario's machine names.
fn machine(name: &str, gpus: u64) -> Machine {
    Library::default().machine_with(name, gpus).unwrap()
}

fn device(machine: &Machine, kind: DeviceKind) -> &Device {
    machine.devices.iter().find(|device| device.kind == kind).unwrap()
}

fn source() -> &'static str {
    "source: {estimated: {reason: a test}}"
}

#[test]
fn an_engine_without_values_changes_nothing() {
    let plain = machine("rtx-4090", 2);
    assert_eq!(plain.run_by(&EngineExecution::default()), plain);
}

#[test]
fn small_kernels_take_their_shortest_time_and_long_ones_their_own() {
    let plain = machine("rtx-5090", 1);
    let run = plain.run_by(&engine(&format!("kernel: {{value: 4 us, {}}}", source())));
    let (before, after) = (device(&plain, DeviceKind::Gpu), device(&run, DeviceKind::Gpu));
    for bytes in [1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 30].map(Bytes::new) {
        let [before, after] =
            [before, after].map(|gpu| (gpu.elementwise_time(bytes).time + gpu.launch.value).get());
        assert!((after - before.max(4e-6)).abs() < 1e-12, "{bytes}: {before} {after}");
    }
    let product = |gpu: &Device, m, n| gpu.gemm_time(DType::Bf16, m, n, n).unwrap().time + gpu.launch.value;
    assert!((product(after, 1, 64).get() - 4e-6).abs() < 1e-12);
    assert_eq!(product(after, 4096, 8192), product(before, 4096, 8192));
    assert_eq!(after.elementwise_time(Bytes::ZERO).time, Seconds::ZERO, "no kernel without work");
}

#[test]
fn host_memory_is_read_at_the_engines_share_of_its_peak() {
    let plain = machine("rtx-5090", 1);
    let run = plain.run_by(&engine(&format!("host_read: {{value: 0.5, {}}}", source())));
    let memory = |machine: &Machine| {
        machine.memories.iter().find(|memory| memory.kind == MemoryKind::Dram).unwrap().clone()
    };
    let peak = memory(&plain).details.peak.unwrap().value;
    assert_eq!(memory(&run).bandwidth.value, peak * 0.5);
    let slower = memory(&plain).bandwidth.value / memory(&run).bandwidth.value;
    let row = |machine| device(machine, DeviceKind::Cpu).gemm_time(DType::Bf16, 1, 8192, 8192).unwrap().time;
    assert!((row(&run) / row(&plain) / slower - 1.0).abs() < 1e-3, "one row is read, not computed");
    let gpu = |machine| device(machine, DeviceKind::Gpu).gemm_time(DType::Bf16, 1, 8192, 8192).unwrap().time;
    assert_eq!(gpu(&run), gpu(&plain));
}

#[test]
fn memory_of_many_channels_has_a_share_of_its_own_unless_a_gpu_shares_it() {
    let text = format!("host_read: {{value: 0.7, {s}}}\nserver_read: {{value: 0.5, {s}}}", s = source());
    for (name, share) in [("rtx-4090", 0.7), ("h100-sxm", 0.5), ("radeon-8060s", 0.7)] {
        let plain = machine(name, 1);
        let run = plain.run_by(&engine(&text));
        let dram = run.memories.iter().find(|memory| memory.details.peak.is_some()).unwrap();
        let peak = dram.details.peak.as_ref().unwrap().value;
        assert!((dram.bandwidth.value.get() / peak.get() - share).abs() < 1e-9, "{name}");
    }
}

#[test]
fn values_with_all_layers_on_gpus_stand_in_the_place_of_the_others() {
    let text = format!(
        "launch: {{value: 4 us, {s}}}\nhop: {{value: 60 us, {s}}}\non_gpus: {{launch: {{value: 1 us, {s}}}}}",
        s = source()
    );
    let (plain, engine) = (machine("rtx-5090", 1), engine(&text));
    let launch = |machine: &Machine| device(machine, DeviceKind::Gpu).launch.value.get();
    let [divided, whole] = [engine.clone(), engine.with_all_on_gpus()].map(|engine| plain.run_by(&engine));
    assert!((launch(&divided) - launch(&plain) - 4e-6).abs() < 1e-12);
    assert!((launch(&whole) - launch(&plain) - 1e-6).abs() < 1e-12);
    assert_eq!(engine.with_all_on_gpus().hop, engine.hop);
    assert_eq!(EngineExecution::default().with_all_on_gpus(), EngineExecution::default());
}

#[test]
fn a_fork_join_takes_longer_the_more_cores_there_are() {
    let plain = machine("rtx-5090", 1);
    let run = plain.run_by(&engine(&format!("host_join: {{value: 0.5 us, {}}}", source())));
    let cores = device(&plain, DeviceKind::Cpu).cores.len() as f64;
    let launch = |machine, kind| device(machine, kind).launch.value.get();
    let more = launch(&run, DeviceKind::Cpu) - launch(&plain, DeviceKind::Cpu);
    assert!(cores > 0.0 && (more - 0.5e-6 * cores).abs() < 1e-12);
    assert_eq!(device(&run, DeviceKind::Gpu), device(&plain, DeviceKind::Gpu));
}

#[test]
fn fewer_threads_clock_higher_and_of_more_the_core_with_the_most_ends_last() {
    let plain = machine("rtx-5090", 1);
    let cores = device(&plain, DeviceKind::Cpu).cores.len() as u64;
    let products = |machine: &Machine, m| {
        device(machine, DeviceKind::Cpu).gemm_time(DType::Bf16, m, 8192, 8192).unwrap().time.get()
    };
    let join = format!("host_join: {{value: 0.5 us, {}}}", source());
    let launch = |machine: &Machine| device(machine, DeviceKind::Cpu).launch.value.get();
    assert!(cores.is_multiple_of(2));
    let (half, more) = (2.0 / 1.25, 1.0 / 0.95);
    for (threads, slower) in
        [(cores, 1.0), (cores / 2, half), (cores * 3 / 2, 4.0 / 3.0 * more), (cores * 4, more)]
    {
        let stated = format!("{join}\nthreads: {{value: {threads}, {}}}", source());
        let run = plain.run_by(&engine(&stated));
        assert!((products(&run, 2048) / products(&plain, 2048) / slower - 1.0).abs() < 1e-6, "{threads}");
        assert!((launch(&run) - launch(&plain) - 0.5e-6 * threads as f64).abs() < 1e-12, "{threads}");
        assert!((products(&run, 1) / products(&plain, 1) - 1.0).abs() < 1e-6, "one row is read");
        let prompts = format!("{stated}\nprompt_threads: {{value: {cores}, {}}}", source());
        let run = plain.run_by(&engine(&prompts));
        assert_eq!((products(&run, 2048), launch(&run)), (products(&plain, 2048), launch(&run)));
    }
}

#[test]
fn kernels_of_the_longest_architecture_that_fits_are_taken() {
    let text = format!(
        "architectures:\n  rdna: {{product: {{value: 0.5, {s}}}, half_rate_rows: {{value: 40, {s}}}}}\n  \
         rdna3: {{product: {{value: 0.25, {s}}}, half_rate_rows: {{value: 40, {s}}}}}",
        s = source()
    );
    let engine = engine(&text);
    let time = |machine: &Machine, dtype, m| {
        device(machine, DeviceKind::Gpu).gemm_time(dtype, m, 8192, 8192).unwrap().time.get()
    };
    for (name, share) in [("rx-6800", 0.5), ("rx-7900-xt", 0.25)] {
        let plain = machine(name, 1);
        let run = plain.run_by(&engine);
        let wide = device(&plain, DeviceKind::Gpu).fastest_product(DType::F16).unwrap().value.get();
        for m in [16, 40, 512, 4096] {
            let least = 2.0 * (m as f64 + 40.0) * 8192.0 * 8192.0 / (share * wide);
            assert!((time(&run, DType::Q4K, m) / least - 1.0).abs() < 1e-6, "{name}, {m} rows");
        }
        for m in [1, 4] {
            assert_eq!(time(&run, DType::Q4K, m), time(&plain, DType::Q4K, m), "vectors have no tiles");
        }
        assert_eq!(time(&run, DType::F16, 512), time(&plain, DType::F16, 512));
    }
    let other = machine("rtx-5090", 1);
    assert_eq!(other.run_by(&engine), other);
}

#[test]
fn prompts_are_attended_to_by_vectors_where_an_engine_has_no_kernels_for_tiles() {
    let prefill = AttentionShape {
        phase: Phase::Prefill,
        batch: 1,
        new_tokens: 512,
        past_tokens: 1 << 15,
        heads: 128,
        kv_heads: 128,
        head_dim: 192,
    };
    let decode = AttentionShape { phase: Phase::Decode, new_tokens: 1, ..prefill };
    for (name, slower) in [("spr-h100", true), ("rtx-5090", false)] {
        let plain = Library::default().machine(name).unwrap_or_else(|_| machine(name, 1));
        let run = plain.run_by(&engine("host_tiles: false"));
        for kv in [DType::F16, DType::Int8] {
            let time = |machine, shape| {
                device(machine, DeviceKind::Cpu).attention_time(kv, shape).unwrap().time.get()
            };
            assert_eq!(time(&run, &prefill) > time(&plain, &prefill) * 1.2, slower, "{name}, {kv}");
            assert!((time(&run, &decode) / time(&plain, &decode) - 1.0).abs() < 1e-9, "{name}, {kv}");
        }
    }
}

#[test]
fn hops_links_and_graphs_are_the_engines() {
    let plain = machine("rtx-5090", 2);
    let text = format!(
        "hop: {{value: 20 us, {s}}}\ngraphs: false\nissue: {{value: 5 us, {s}}}\npageable_link: {{value: 0.5, {s}}}",
        s = source()
    );
    let run = plain.run_by(&engine(&text));
    for (before, after) in plain.devices.iter().zip(&run.devices) {
        assert!((after.sync.value - before.sync.value - Seconds::new(20e-6)).get().abs() < 1e-12);
        assert_eq!(after.issue.is_some(), after.kind == DeviceKind::Gpu);
    }
    let graphs = run.run_by(&engine("graphs: true"));
    assert!(graphs.devices.iter().all(|device| device.issue.is_none()));
    for (before, after) in plain.links.iter().zip(&run.links) {
        let of_host = [before.from, before.to].iter().any(|&end| plain.memory(end).kind != MemoryKind::Hbm);
        let share = if of_host { 0.5 } else { 1.0 };
        assert_eq!(after.bandwidth.value, before.bandwidth.value * share, "{}", before.name);
    }
}

#[test]
fn quantised_weights_are_read_at_the_engines_share() {
    let plain = machine("rtx-5090", 1);
    let run = plain.run_by(&engine(&format!("gpu_read: {{value: 0.25, {}}}", source())));
    let (gpu, id) = (device(&run, DeviceKind::Gpu), device(&plain, DeviceKind::Gpu).memory);
    let rate: BytesPerSec = plain.memory(id).bandwidth.value * 0.25;
    let read = DType::Q4K.matrix_bytes(8192, 8192) / rate;
    assert_eq!(gpu.gemm_time(DType::Q4K, 1, 8192, 8192).unwrap().time, read);
    let many = |gpu: &Device| gpu.gemm_time(DType::Q4K, 4096, 8192, 8192).unwrap().time;
    assert!(many(gpu) > read, "many rows are computed, not read");
    let bf16 = |machine| device(machine, DeviceKind::Gpu).gemm_time(DType::Bf16, 1, 8192, 8192).unwrap();
    assert_eq!(bf16(&run), bf16(&plain));
}

#[test]
fn other_weights_are_read_at_the_engines_share_where_it_is_less() {
    let plain = machine("mi250-gcd", 1);
    let s = source();
    let text = format!(
        "float_read: {{value: 0.5, {s}}}\narchitectures:\n  cdna2: {{float_read: {{value: 0.25, {s}}}}}"
    );
    let run = plain.run_by(&engine(&text));
    let gpu = device(&run, DeviceKind::Gpu);
    let rate: BytesPerSec = plain.memory(gpu.memory).bandwidth.value * 0.25;
    let read = DType::Bf16.matrix_bytes(8192, 8192) / rate;
    assert_eq!(gpu.gemm_time(DType::Bf16, 1, 8192, 8192).unwrap().time, read);
    let many = |machine| device(machine, DeviceKind::Gpu).gemm_time(DType::Bf16, 8192, 8192, 8192).unwrap();
    assert_eq!(many(&run), many(&plain), "many rows are computed, not read");
    let quantised = |machine| device(machine, DeviceKind::Gpu).gemm_time(DType::Q4K, 1, 8192, 8192).unwrap();
    assert_eq!(quantised(&run), quantised(&plain));
}

#[test]
fn a_cpu_multiplies_blocks_at_most_as_fast_as_the_engines_kernels() {
    let plain = machine("rtx-5090", 1);
    let run = plain.run_by(&engine(&format!("host_product: {{value: 1.5, {}}}", source())));
    let unpacked = device(&plain, DeviceKind::Cpu).details.dequantisation.clone().unwrap().rate.value;
    let time =
        |machine, dtype, m| device(machine, DeviceKind::Cpu).gemm_time(dtype, m, 8192, 8192).unwrap().time;
    let products = 2048.0 * 8192.0 * 8192.0;
    let least = products / (1.5 * unpacked.get());
    assert!((time(&run, DType::Q4K, 2048).get() / least - 1.0).abs() < 1e-9);
    assert!(time(&plain, DType::Q4K, 2048) < time(&run, DType::Q4K, 2048));
    assert_eq!(time(&run, DType::Q4K, 1), time(&plain, DType::Q4K, 1), "one row is read, not computed");
    assert_eq!(time(&run, DType::Bf16, 2048), time(&plain, DType::Bf16, 2048));
    let text = format!(
        "host_product: {{value: 1.5, {s}}}\nhost_formats: {{iq4_k: {{value: 0.5, {s}}}}}",
        s = source()
    );
    let slower = plain.run_by(&engine(&text));
    assert_eq!(time(&slower, DType::Q4K, 2048), time(&run, DType::Q4K, 2048));
    let ratio = time(&slower, DType::Iq4K, 2048).get() / time(&run, DType::Iq4K, 2048).get();
    assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
}

#[test]
fn a_block_is_unpacked_once_for_a_tile_of_rows_and_never_more_than_once_for_each_row() {
    let plain = machine("rtx-5090", 1);
    let s = source();
    let text = format!("host_product: {{value: 2, {s}}}\nhost_half_rate_rows: {{value: 8, {s}}}");
    let run = plain.run_by(&engine(&text));
    let unpacked = device(&plain, DeviceKind::Cpu).details.dequantisation.clone().unwrap().rate.value.get();
    let values = 8192.0 * 8192.0;
    let mut before = 0.0;
    for m in [1, 2, 4, 7, 8, 9, 16, 64, 4096] {
        let time = device(&run, DeviceKind::Cpu).gemm_time(DType::Q4K, m, 8192, 8192).unwrap().time.get();
        let rows = m as f64;
        let dots = rows * values / unpacked;
        let tiles = (rows + 8.0) * values / (2.0 * unpacked);
        let computed = dots.min(tiles);
        assert!(time >= computed * (1.0 - 1e-9), "{m} rows");
        assert!(time >= before, "more rows are not faster: {m}");
        if m >= 16 {
            assert!((time / tiles - 1.0).abs() < 1e-9, "{m} rows are tiles");
        }
        before = time;
    }
}

#[test]
fn integer_products_of_blocks_take_a_share_of_the_gpus_integer_rate_whatever_16_bits_reach() {
    let plain = machine("rtx-3090", 1);
    let s = source();
    let text = |share| format!("architectures:\n  ampere: {{integer_product: {{value: {share}, {s}}}}}");
    let gpu = device(&plain, DeviceKind::Gpu);
    let integers = gpu.gemm[&DType::Int8].fastest().unwrap().value.get();
    let wide = gpu.fastest_product(DType::F16).unwrap().value.get();
    let products = 2.0 * 4096.0 * 8192.0 * 8192.0;
    for share in [0.1, 0.25, 0.5] {
        let run = plain.run_by(&engine(&text(share)));
        let time = device(&run, DeviceKind::Gpu).gemm_time(DType::Q4K, 4096, 8192, 8192).unwrap().time.get();
        assert!((time * integers * share / products - 1.0).abs() < 1e-9, "{share}");
    }
    assert!(integers * 0.5 > wide, "the largest share is faster than 16 bits");
    let run = plain.run_by(&engine(&text(0.5)));
    let bf16 = |machine| device(machine, DeviceKind::Gpu).gemm_time(DType::Bf16, 4096, 8192, 8192).unwrap();
    assert_eq!(bf16(&run), bf16(&plain));
    // A GPU without integers of 8 bits, or of another generation, computes as before.
    for name in ["apple-m1-max", "rtx-5090"] {
        let plain = machine(name, 1);
        let run = plain.run_by(&engine(&text(0.5)));
        assert_eq!(device(&run, DeviceKind::Gpu), device(&plain, DeviceKind::Gpu), "{name}");
    }
}

#[test]
fn a_generations_own_share_of_reading_takes_the_place_of_the_engines() {
    let plain = machine("rtx-3090", 1);
    let s = source();
    let text = format!(
        "gpu_read: {{value: 0.5, {s}}}\narchitectures:\n  ampere: {{gpu_read: {{value: 0.25, {s}}}}}"
    );
    let run = plain.run_by(&engine(&text));
    let gpu = device(&run, DeviceKind::Gpu);
    let rate = plain.memory(gpu.memory).bandwidth.value * 0.25;
    let read = DType::Q4K.matrix_bytes(8192, 8192) / rate;
    assert_eq!(gpu.gemm_time(DType::Q4K, 1, 8192, 8192).unwrap().time, read);
}

#[test]
fn quantised_caches_are_read_as_the_engines_kernels_do() {
    let plain = machine("rtx-5090", 1);
    let text = format!("kv_by_head: {{value: 1.25, {s}}}\nhost_cache: {{value: 0.1, {s}}}", s = source());
    let run = plain.run_by(&engine(&text));
    let shape = AttentionShape {
        phase: Phase::Decode,
        batch: 1,
        new_tokens: 1,
        past_tokens: 1 << 16,
        heads: 64,
        kv_heads: 4,
        head_dim: 128,
    };
    let time = |machine, kind, kv, shape| device(machine, kind).attention_time(kv, &shape).unwrap().time;
    let gpu = |machine, kv, shape| time(machine, DeviceKind::Gpu, kv, shape);
    let memory = plain.memory(device(&plain, DeviceKind::Gpu).memory).bandwidth.value;
    let each = AttentionShape { kv_heads: shape.heads, ..shape };
    assert_eq!(gpu(&run, DType::Int8, shape), DType::Int8.bytes(each.kv_elements()) / (memory * 1.25));
    for (kv, shape) in [
        (DType::Bf16, shape),
        (DType::Int8, AttentionShape { head_dim: 512, ..shape }),
        (DType::Int8, AttentionShape { phase: Phase::Prefill, new_tokens: 64, ..shape }),
    ] {
        assert_eq!(gpu(&run, kv, shape), gpu(&plain, kv, shape), "{kv} {shape}");
    }
    let cpu = |machine, kv| time(machine, DeviceKind::Cpu, kv, shape);
    assert!(cpu(&run, DType::Int8) > cpu(&plain, DType::Int8));
    assert_eq!(cpu(&run, DType::Bf16), cpu(&plain, DType::Bf16));
}

#[test]
fn the_all_reduce_of_the_longest_name_that_fits_the_link_is_taken() {
    let nvlink = machine("h100-sxm", 4).with_tensor_parallel(4).unwrap();
    let text = format!(
        "all_reduce:\n  nvlink: {{step: {{value: 1 us, {s}}}}}\n  nvlink4: {{step: {{value: 2 us, {s}}}}}\n  pcie: {{step: {{value: 9 us, {s}}}}}",
        s = source()
    );
    let step = |machine: &Machine| {
        let gpu = device(machine, DeviceKind::Gpu).ranks.clone().unwrap();
        (gpu.all_reduce.step.value, gpu.all_reduce.bandwidth.value)
    };
    let engine = engine(&text);
    assert_eq!(step(&nvlink.run_by(&engine)), (Seconds::new(2e-6), step(&nvlink).1));
    let pcie = machine("rtx-4090", 2).with_tensor_parallel(2).unwrap();
    assert_eq!(step(&pcie.run_by(&engine)).0, Seconds::new(9e-6));
}

#[test]
fn sixteen_bits_of_equal_peaks_reach_the_same_share() {
    let part = Library::default().profile("rtx-5090").unwrap();
    let Profile::Gpu(part) = part else { panic!("a GPU") };
    let [bf16, f16] = [DType::Bf16, DType::F16].map(|dtype| part.reached_peak(dtype).unwrap().value);
    assert_eq!(bf16, f16);
    let mut faster = part.clone();
    faster.peak.insert(DType::F16, Sourced::estimated(bf16 * 4.0, "sums of 16 bits"));
    assert_eq!(faster.reached_peak(DType::Bf16).unwrap().value, bf16);
    assert_eq!(faster.reached_peak(DType::F16).unwrap().value, bf16 * 4.0 * 0.6, "the documented share");
}

#[test]
fn rounding_activations_adds_a_pass_over_them_to_fp8_products_alone() {
    let plain = machine("h100-sxm", 1);
    let run = plain.run_by(&engine("quantises_activations: true"));
    let [before, after] = [&plain, &run].map(|machine| device(machine, DeviceKind::Gpu));
    let time = |gpu: &Device, dtype| gpu.gemm_time(dtype, 256, 4096, 8192).unwrap().time;
    let pass = before.elementwise_time(Bytes::new(256 * 8192 * 3)).time;
    assert_eq!(time(after, DType::Fp8), time(before, DType::Fp8) + pass);
    assert_eq!(time(after, DType::Bf16), time(before, DType::Bf16));
}

#[test]
fn a_cache_that_no_heads_share_is_read_as_one_with_a_kv_head_for_each() {
    let plain = machine("a100-40-sxm", 1);
    let apart = plain.run_by(&engine("grouped_attention: false"));
    let shape = |phase, kv_heads| AttentionShape {
        phase,
        batch: 32,
        new_tokens: if phase == Phase::Decode { 1 } else { 512 },
        past_tokens: 2048,
        heads: 32,
        kv_heads,
        head_dim: 128,
    };
    let time = |machine: &Machine, phase, kv_heads| {
        device(machine, DeviceKind::Gpu).attention_time(DType::Bf16, &shape(phase, kv_heads)).unwrap().time
    };
    assert_eq!(time(&apart, Phase::Decode, 8), time(&plain, Phase::Decode, 32));
    assert!(time(&apart, Phase::Decode, 8) > time(&plain, Phase::Decode, 8));
    assert_eq!(time(&apart, Phase::Decode, 32), time(&plain, Phase::Decode, 32));
    assert_eq!(time(&apart, Phase::Prefill, 8), time(&plain, Phase::Prefill, 8));
}

#[test]
fn grouped_products_are_no_faster_than_their_share_of_the_fastest_dense_one() {
    let plain = machine("h100-sxm", 1);
    let run = plain.run_by(&engine(&format!("grouped_product: {{value: 0.5, {}}}", source())));
    let [before, after] = [&plain, &run].map(|machine| device(machine, DeviceKind::Gpu));
    let fastest = before.fastest_product(DType::Fp8).unwrap().value;
    for m in [1, 64, 4096] {
        let size = [m, 28672, 4096];
        let dense = before.gemm_time(DType::Fp8, m, 28672, 4096).unwrap();
        assert_eq!(before.as_grouped(DType::Fp8, size, m, dense).time, dense.time);
        let flop = hwprofiles::Flop::new(2 * size.map(u128::from).iter().product::<u128>());
        let least = flop / (fastest * 0.5);
        assert_eq!(after.as_grouped(DType::Fp8, size, m, dense).time, dense.time.max(least), "{m} rows");
    }
}

#[test]
fn a_library_multiplies_weights_that_were_widened_in_memory() {
    let text = |kernels: &str| format!("architectures:\n  rdna3: {{{kernels}}}");
    let s = source();
    let own = format!("product: {{value: 0.4, {s}}}, half_rate_rows: {{value: 40, {s}}}");
    let library = format!("{own}, widened: {{from_rows: {{value: 64, {s}}}, share: {{value: 0.5, {s}}}}}");
    let plain = machine("rx-7900-xt", 1);
    let [own, run] = [own, library].map(|kernels| plain.run_by(&engine(&text(&kernels))));
    let time = |machine: &Machine, dtype, m| {
        device(machine, DeviceKind::Gpu).gemm_time(dtype, m, 8192, 4096).unwrap().time.get()
    };
    let gpu = device(&plain, DeviceKind::Gpu);
    let (rate, bandwidth) =
        (gpu.fastest_product(DType::F16).unwrap().value.get() * 0.5, gpu.elementwise.value.get());
    let values = 8192.0 * 4096.0;
    for m in [64, 512, 4096] {
        let computed = 2.0 * m as f64 * values / rate;
        for dtype in [DType::Q4K, DType::Int8] {
            let bytes = dtype.matrix_bytes(8192, 4096).as_f64() + 4.0 * values;
            let least = computed + bytes / bandwidth;
            assert!((time(&run, dtype, m) / least - 1.0).abs() < 1e-9, "{dtype}, {m} rows");
        }
        let wide = computed.max(2.0 * values / bandwidth);
        assert!((time(&run, DType::F16, m) / wide - 1.0).abs() < 1e-9, "{m} rows");
    }
    for (dtype, m) in [(DType::Q4K, 1), (DType::Q4K, 63), (DType::F16, 63)] {
        assert_eq!(time(&run, dtype, m), time(&own, dtype, m), "few rows have kernels of their own");
    }
    // Tiles of experts with few tokens are as large as others.
    let gpu = device(&own, DeviceKind::Gpu);
    let few = gpu.gemm_time(DType::Q4K, 2, 8192, 4096).unwrap();
    let tiles = 2.0 * 42.0 * values / gpu.details.quantised_product.as_ref().unwrap().value.get();
    let grouped = gpu.as_grouped(DType::Q4K, [2, 8192, 4096], 16, few).time.get();
    assert!((grouped / tiles - 1.0).abs() < 1e-9 && tiles > few.time.get(), "{grouped} {tiles}");
}

#[test]
fn scores_move_through_memory_where_attention_is_not_one_kernel() {
    let s = source();
    let text = format!(
        "score_traffic: {{value: 20 B, {s}}}\narchitectures:\n  rdna: {{attention: {{value: 0.5, {s}}}, \
         unfused_attention: {{value: 0.5, {s}}}, backends: {{vulkan: {{attention: {{value: 0.25, {s}}}}}}}}}"
    );
    let plain = machine("rx-7900-xt", 1);
    let run = |more: &str| plain.run_by(&engine(&format!("{text}\n{more}")));
    let decode = AttentionShape {
        phase: Phase::Decode,
        batch: 1,
        new_tokens: 1,
        past_tokens: 1 << 14,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
    };
    let prefill = AttentionShape { phase: Phase::Prefill, new_tokens: 512, ..decode };
    let time = |machine: &Machine, shape| {
        device(machine, DeviceKind::Gpu).attention_time(DType::F16, shape).unwrap().time.get()
    };
    let (fused, unfused) = (run(""), run("flash_attention: false"));
    let scores = 512.0 * (512.0 + 16384.0) * 32.0;
    let moved = scores * 20.0 / device(&plain, DeviceKind::Gpu).elementwise.value.get();
    assert!(((time(&unfused, &prefill) - time(&fused, &prefill)) / moved - 1.0).abs() < 1e-6);
    assert_eq!(time(&unfused, &decode), time(&fused, &decode));
    let vulkan = run(&format!("backend: {{value: vulkan, {s}}}"));
    assert!((time(&vulkan, &prefill) / time(&fused, &prefill) - 2.0).abs() < 1e-6);
}

#[test]
fn wide_vectors_that_share_two_ports_unpack_less_and_attend_like_narrow_ones() {
    let rates = |name: &str| {
        let parts = format!("parts: {{cpu: {name}, dram: {{capacity: 64 GB}}}}");
        let parts = yaml::read::<Composition>(&parts, "inline").unwrap();
        let machine = Library::default().compose(&parts).unwrap();
        let cpu = device(&machine, DeviceKind::Cpu).clone();
        let unpacked = cpu.details.dequantisation.as_ref().unwrap().rate.value.get();
        let narrow = cpu.details.ceilings[&DType::F32]["avx2"].streamed.as_ref().unwrap().value.get();
        (unpacked / narrow, cpu.attention[&DType::F32].best_rate().unwrap().get() / narrow)
    };
    // 32 FLOP per cycle by 256 bits, of which 65 % are reached.
    let narrow = 32.0 * 0.65;
    for (name, values, attention) in [("i9-10900x", 12.0, 1.0), ("epyc-9355", 16.0, 2.0)] {
        let (unpacked, attended) = rates(name);
        assert!((unpacked * narrow / values - 1.0).abs() < 0.05, "{name}: {}", unpacked * narrow);
        assert!((attended / attention - 1.0).abs() < 0.05, "{name}: {attended}");
    }
}
