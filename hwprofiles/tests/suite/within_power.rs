//! What an engine's kernels reach within a GPU's power, and what tiles that are not full cost.

use hwprofiles::{
    AttentionShape, Bytes, DType, Device, DeviceKind, EngineExecution, GpuPart, Library, Machine, Phase,
    Profile, yaml,
};

const SOURCE: &str = "source: {estimated: {reason: a test}}";

fn run(name: &str, gpus: u64, kernels: &str) -> Machine {
    let text = format!("architectures:\n  ampere: {{{kernels}}}");
    let engine: EngineExecution = yaml::read(&text, "engine.yaml").unwrap();
    Library::default().machine_with(name, gpus).unwrap().run_by(&engine)
}

fn gpu(machine: &Machine) -> &Device {
    machine.devices.iter().find(|device| device.kind == DeviceKind::Gpu).unwrap()
}

fn products(more: &str) -> String {
    format!("integer_product: {{value: 0.5, {SOURCE}}}{more}")
}

fn energy(word: &str, value: &str) -> String {
    format!(", {word}: {{value: {value}, {SOURCE}}}")
}

#[test]
fn products_reach_no_more_than_the_gpus_power_pays_for() {
    for (name, watts) in [("rtx-3060-12", 170.0), ("rtx-3090", 350.0)] {
        let rate = |more: &str| {
            let machine = run(name, 1, &products(more));
            gpu(&machine).details.quantised_product.as_ref().unwrap().value.get()
        };
        let free = rate("");
        let dear = rate(&energy("product_energy", "50 pJ"));
        assert!((dear * 50e-12 / watts - 1.0).abs() < 1e-9, "{name}: {dear}");
        assert_eq!(rate(&energy("product_energy", "0.1 pJ")), free, "{name}: the clock binds");
    }
    // Each GPU of a group has its own power.
    let dear = products(&energy("product_energy", "50 pJ"));
    let rate = |gpus| {
        let machine = run("rtx-3090", gpus, &dear);
        gpu(&machine).details.quantised_product.as_ref().unwrap().value
    };
    assert_eq!(rate(1), rate(2));
}

#[test]
fn cards_of_one_die_compute_within_their_power() {
    let library = Library::default();
    let part = |name: &str| match library.profile(name).unwrap() {
        Profile::Gpu(gpu) => *gpu,
        other => panic!("{name} is {}", other.kind()),
    };
    let reached = |gpu: &GpuPart, format| gpu.reached_peak(format).unwrap().value.get();
    let sxm = part("h100-sxm");
    for name in ["h100-pcie", "h100-nvl"] {
        let card = part(name);
        let watts = |gpu: &GpuPart| gpu.power.as_ref().unwrap().value.get();
        for format in [DType::Bf16, DType::Fp8] {
            let [rate, power] = [reached(&card, format) / reached(&sxm, format), watts(&card) / watts(&sxm)];
            assert!((rate / power - 1.0).abs() < 0.01, "{name}, {format}: {rate:.3} at {power:.3}");
        }
    }
}

#[test]
fn attention_of_prompts_reaches_what_the_power_pays_for_and_that_of_decoding_stays() {
    let shape = AttentionShape {
        phase: Phase::Prefill,
        batch: 1,
        new_tokens: 512,
        past_tokens: 1 << 14,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
    };
    let decode = AttentionShape { phase: Phase::Decode, new_tokens: 1, ..shape };
    let time = |machine: &Machine, shape| gpu(machine).attention_time(DType::F16, shape).unwrap().time.get();
    let text = |energy: &str| format!("attention: {{value: 0.8, {SOURCE}}}{energy}");
    let [plain, dear, dearer] = ["", "10 pJ", "20 pJ"].map(|value| {
        let more = if value.is_empty() { String::new() } else { energy("attention_energy", value) };
        run("rtx-3090", 1, &text(&more))
    });
    assert!((time(&dearer, &shape) / time(&dear, &shape) - 2.0).abs() < 1e-3);
    assert!(time(&dear, &shape) != time(&plain, &shape));
    assert_eq!(time(&dear, &decode), time(&plain, &decode));
    // Measured attention was within the power.
    let [plain, dear] = ["", "100 pJ"].map(|value| {
        let more = if value.is_empty() { String::new() } else { energy("attention_energy", value) };
        run("a100-sxm", 1, &text(&more))
    });
    let time = |machine: &Machine| gpu(machine).attention_time(DType::Bf16, &shape).unwrap().time;
    assert_eq!(time(&dear), time(&plain));
}

#[test]
fn the_tokens_of_an_expert_are_filled_up_to_a_tile_for_all_tokens() {
    let tiles = |more: &str| products(&format!(", tile_rows: {{value: 128, {SOURCE}}}{more}"));
    let machine = run("rtx-3090", 1, &tiles(""));
    let gpu = gpu(&machine);
    let rate = gpu.details.quantised_product.as_ref().unwrap().value.get();
    let (n, k) = (1 << 16, 4096);
    let row = 2.0 * (n * k) as f64 / rate;
    let dense = |m: u64| gpu.gemm_time(DType::Q4K, m, n, k).unwrap();
    // A step of 74 tokens has a tile of 80, one of 512 four of 128, one of 520 five of 104.
    for (tokens, filled) in [(74, 80.0), (128, 128.0), (512, 512.0), (520, 520.0), (600, 600.0)] {
        assert!((dense(tokens).time.get() / (filled * row) - 1.0).abs() < 1e-9, "{tokens} tokens");
    }
    let experts = |each: u64, tokens: u64| {
        gpu.as_grouped(DType::Q4K, [each, n, k], tokens, dense(each)).time.get() / row
    };
    for each in [2, 16, 24] {
        assert!((experts(each, 512) / 128.0 - 1.0).abs() < 0.01, "{each} tokens for each expert");
        assert!((experts(each, 64) / 64.0 - 1.0).abs() < 0.1, "{each} tokens of 64 in all");
    }
    let many = experts(1024, 1 << 14);
    assert!((many / (1024.0 + 64.0) - 1.0).abs() < 0.01, "half of a tile is empty: {many}");
    let counts: Vec<_> = [8, 32, 64, 128, 256, 512].map(|each| experts(each, 4096)).into();
    assert!(counts.is_sorted(), "more tokens take longer: {counts:?}");
}

#[test]
fn rounding_moves_its_bytes_before_products_with_quantised_weights() {
    let text = format!("rounding: {{value: 5 B, {SOURCE}}}");
    let engine: EngineExecution = yaml::read(&text, "engine.yaml").unwrap();
    let plain = Library::default().machine_with("rtx-3090", 1).unwrap();
    let rounded = plain.run_by(&engine);
    let time = |machine: &Machine, dtype, m| gpu(machine).gemm_time(dtype, m, 4096, 2048).unwrap().time;
    assert_eq!(time(&rounded, DType::Q4K, 1), time(&plain, DType::Q4K, 1), "a part of the launch");
    for m in [16, 512] {
        let moved = gpu(&plain).streaming_time(Bytes::new(5 * m * 2048)).time;
        let more = (time(&rounded, DType::Q4K, m) - time(&plain, DType::Q4K, m)).get();
        assert!((more / moved.get() - 1.0).abs() < 1e-6, "{m} rows");
        assert_eq!(time(&rounded, DType::Bf16, m), time(&plain, DType::Bf16, m));
    }
}
