//! Totals of published models against those that were derived for them from their configs by hand,
//! and the laws of the work of all their layers.

use hwprofiles::{Bytes, DType, Flop};
use proptest::prelude::*;
use scenarios::{
    Experts, Formats, Mixer, Model, Operator, Phase, Recurrence, Shape, Step, Sublayer, WeightFormats, Work,
    kv_bytes,
};

/// For each preset: parameters; those that a token uses, with the head and without the token table;
/// numbers that a token adds to the KV cache; those that it adds to index keys; bytes that a
/// sequence keeps whatever its length (windows in bf16, states in f32); parameters of MTP modules.
/// Derived from each published `config.json` and, for parameters, checked against the checkpoints'
/// indices.
const TOTALS: [(&str, [u64; 6]); 22] = [
    ("deepseek-v3", [671_026_419_200, 36_625_596_416, 35_136, 0, 0, 11_610_068_224]),
    ("deepseek-v3.2", [671_877_944_064, 37_477_121_280, 35_136, 7_808, 0, 11_624_027_648]),
    ("glm-5", [743_911_218_432, 40_833_120_768, 44_928, 9_984, 0, 9_952_920_576]),
    ("glm-5.2", [743_377_019_904, 40_298_922_240, 44_928, 2_688, 0, 9_952_920_576]),
    ("kimi-k2.5", [1_026_408_232_448, 31_687_065_600, 35_136, 0, 0, 0]),
    ("deepseek-v4-flash", [284_334_567_511, 13_269_845_586, 3_440, 0, 16_982_016, 6_609_983_350]),
    ("deepseek-v4-pro", [1_572_999_528_803, 48_851_820_638, 4_924, 0, 25_477_120, 25_840_031_286]),
    ("qwen3.5-397b-a17b", [396_346_350_336, 16_331_918_080, 15_360, 0, 192_061_440, 6_595_568_128]),
    ("qwen3.5-122b-a10b", [122_111_526_912, 9_008_446_464, 12_288, 0, 153_649_152, 2_523_679_232]),
    ("qwen3.5-35b-a3b", [34_660_610_688, 2_946_427_520, 10_240, 0, 64_389_120, 844_640_768]),
    ("qwen3.5-27b", [26_895_998_464, 25_624_594_944, 32_768, 0, 153_944_064, 424_699_392]),
    ("gpt-oss-120b", [116_829_156_672, 5_132_846_592, 18_432, 0, 4_718_592, 0]),
    ("gpt-oss-20b", [20_914_757_184, 3_608_304_384, 12_288, 0, 3_145_728, 0]),
    ("minimax-m2.5", [228_689_764_864, 10_415_937_536, 126_976, 0, 0, 0]),
    ("minimax-m3", [426_174_558_336, 24_733_252_608, 61_440, 7_296, 0, 0]),
    ("gemma-4-26b-a4b", [25_233_141_790, 3_822_185_984, 10_240, 0, 209_715_200, 0]),
    ("gemma-4-31b", [30_697_345_340, 30_697_345_340, 40_960, 0, 838_860_800, 0]),
    ("llama-4-maverick", [400_711_848_960, 16_150_200_320, 24_576, 0, 1_207_959_552, 0]),
    ("llama-4-scout", [107_769_861_120, 16_138_403_840, 24_576, 0, 1_207_959_552, 0]),
    ("kimi-k3", [2_779_481_788_000, 104_185_179_232, 13_824, 0, 449_372_160, 0]),
    ("nemotron-3-nano-30b-a3b", [31_577_940_288, 3_227_609_408, 3_072, 0, 49_082_368, 0]),
    ("nemotron-3-super-120b-a12b", [120_668_707_840, 12_232_981_504, 4_096, 0, 170_229_760, 0]),
];

const BF16: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

#[test]
fn totals_of_published_models_are_those_of_their_configs() {
    for (name, [parameters, active, growing, index, state, mtp]) in TOTALS {
        let model = Model::preset(name).unwrap();
        let near = |what: &str, found: f64, expected: u64, within: f64| {
            let expected = expected as f64;
            let wrong = (found - expected).abs() > within * expected;
            assert!(!wrong, "{name}: {what} {found}, not {expected}");
        };
        near("parameters", model.parameters().as_f64(), parameters, 5e-5);
        near("active", model.active_parameters().as_f64(), active, 5e-5);
        near("growing", model.growing_kv_numbers(), growing, 0.0);
        assert_eq!(model.growing_index_numbers(), index, "{name}");
        // The totals have convolutions in bf16; gated delta nets and Mamba-2 keep them in f32.
        near("state", model.constant_bytes(DType::Bf16).as_f64(), state, 0.025);
        near("MTP", model.mtp_parameters().as_f64(), mtp, 1e-6);
    }
}

fn whole(operator: Operator, shape: &Model, step: &Step) -> Work {
    let rows = operator.sublayer().matrix(shape).map_or(0, |(rows, _)| rows);
    Work::count(operator, shape, &BF16, step, &(0..rows))
}

#[test]
fn an_mtp_module_is_a_model_of_one_layer_with_a_projection_of_two_residuals() {
    let with_modules = Model::preset_names().map(|name| Model::preset(name).unwrap()).filter(|m| m.mtp > 0);
    let mut count = 0;
    for model in with_modules {
        let module = model.mtp_module().expect("it has one");
        let (name, ends) = (&model.name, 2 * model.vocab * model.hidden);
        assert_eq!((module.layers, module.mtp, module.mtp_module()), (1, 0, None), "{name}");
        assert_eq!(module.parameters().get() - ends, model.mtp_parameters().get() / model.mtp, "{name}");
        let (step, h) = (Step::verify(2, 3, 10), u128::from(model.hidden));
        let [joined, plain] = [&module, &model].map(|model| whole(Operator::Embed, model, &step));
        assert_eq!((joined.flop, plain.flop), (Flop::new(2 * 6 * h * 2 * h), Flop::ZERO), "{name}");
        let projection = DType::Bf16.matrix_bytes(model.hidden, 2 * model.hidden);
        assert_eq!(joined.weights, plain.weights + projection, "{name}");
        count += 1;
    }
    assert!(count > 5, "{count}");
    assert_eq!(Model::preset("llama-3.1-8b").unwrap().mtp_module(), None);
}

fn names() -> impl Strategy<Value = &'static str> {
    prop::sample::select(Model::preset_names().collect::<Vec<_>>())
}

/// FLOP of the products of all layers and the head for one decoded token: twice the matrices'
/// numbers, and of the experts only those that the token goes to.
fn product_flop(model: &Model) -> u128 {
    let of = |shape: &Model, sublayer: Sublayer| match sublayer {
        Sublayer::Experts => {
            let per_token = shape.experts.as_ref().map_or(0, |experts: &Experts| experts.per_token);
            u128::from(per_token * shape.expert_parameters())
        }
        Sublayer::Embed => 0,
        // Its expansion of keys and values is kept with attention.
        Sublayer::Qkv => {
            let expanded = shape
                .latent()
                .map_or(0, |latent| latent.kv_rank * shape.heads * (latent.nope_dim + latent.v_dim));
            u128::from(sublayer.numbers(shape) + expanded)
        }
        _ => u128::from(sublayer.numbers(shape)),
    };
    let layers: u128 = model
        .kinds()
        .map(|(kind, layers)| {
            let sublayers = kind.sublayers().iter();
            u128::from(layers) * sublayers.map(|sublayer| of(model.shape(kind), *sublayer)).sum::<u128>()
        })
        .sum();
    2 * (layers + of(model, Sublayer::Head))
}

proptest! {
    #![proptest_config(crate::cases(128))]

    #[test]
    fn a_decoded_token_costs_two_flop_per_active_parameter_beside_attention(name in names(), past in 0..5000_u64) {
        let model = Model::preset(name).unwrap();
        let step = Step::decode(1, past.min(model.max_positions - 1));
        let products = |shape: &Model, sublayers: &[Sublayer]| -> Flop {
            let operators = sublayers.iter().flat_map(|sublayer| sublayer.operators(shape));
            let matmul = operators.filter(|operator| !matches!(operator, Operator::Attention | Operator::IndexScores));
            matmul.map(|operator| whole(*operator, shape, &step).flop).sum()
        };
        let mut flop = products(&model, &[Sublayer::Head]).get();
        for (kind, layers) in model.kinds() {
            flop += u128::from(layers) * products(model.shape(kind), kind.sublayers()).get();
        }
        let expected = product_flop(&model);
        // The chance of an expert is not a whole fraction.
        prop_assert!(flop.abs_diff(expected) <= u128::from(model.layers) * 64, "{name}: {flop}, not {expected}");
    }

    #[test]
    fn stored_scored_and_read_grow_with_the_context_and_stay_within_it(
        name in names(), past in 0..200_000_u64, more in 1..5000_u64,
    ) {
        let model = Model::preset(name).unwrap();
        for shape in model.shapes().iter().filter(|shape| shape.has_mixer()) {
            let [few, many] = [past, past + more].map(|past| Step::decode(1, past));
            for operator in [Operator::Attention, Operator::IndexScores] {
                if operator == Operator::IndexScores && !shape.index.is_some_and(|index| index.computes) {
                    continue;
                }
                let [less, greater] = [&few, &many].map(|step| whole(operator, shape, step));
                let chunked = shape.wiring.window.is_some_and(|window| window.chunked);
                prop_assert!(chunked || (less.flop <= greater.flop && less.kv_read <= greater.kv_read));
            }
            let [small, large] = [past + 1, past + more + 1].map(|tokens| kv_bytes(shape, &BF16, 1, tokens));
            prop_assert!(small <= large);
            // Attention reads no more than what is stored, and what an earlier layer stored.
            let read = whole(Operator::Attention, shape, &few).kv_read;
            if !shape.wiring.shares_kv {
                prop_assert!(read <= small, "{name}: {read} of {small}");
            }
        }
    }

    #[test]
    fn a_recurrence_reads_and_writes_its_state_whatever_the_context(
        name in names(), batch in 1..9_u64, past in 0..100_000_u64,
    ) {
        let model = Model::preset(name).unwrap();
        for shape in model.shapes() {
            let Mixer::Recurrent(recurrence) = shape.mixer else { continue };
            let work = whole(Operator::Attention, shape, &Step::decode(batch, past));
            prop_assert_eq!(work.kv_read, recurrence.state_bytes() * batch);
            prop_assert_eq!(work.kv_read, work.kv_written);
            prop_assert_eq!(kv_bytes(shape, &BF16, batch, past + 1), recurrence.state_bytes() * batch);
            prop_assert_eq!(work.flop.get(), u128::from(batch * recurrence.flop_in_turn()));
            let is_recurrence = matches!(work.shape, Shape::Recurrence { .. });
            prop_assert!(is_recurrence);
        }
    }

    #[test]
    fn compressed_attention_scores_its_window_and_its_entries(
        name in prop::sample::select(vec!["deepseek-v4-flash", "deepseek-v4-pro"]),
        new in 1..300_u64, past in 0..9000_u64,
    ) {
        let model = Model::preset(name).unwrap();
        for shape in model.shapes() {
            let Mixer::Compressed(compressed) = shape.mixer else { panic!("compressed") };
            let most = shape.index.map_or(u64::MAX, |index| index.selected);
            let seen = |end: u64| {
                let entries = compressed.ratio.map_or(0, |ratio| (end / ratio).min(most));
                end.min(compressed.window) + entries
            };
            let pairs: u64 = (past + 1..=past + new).map(seen).sum();
            let step = Step { past_tokens: past, ..Step::prefill(1, new) };
            let flop = whole(Operator::Attention, shape, &step).flop.get();
            prop_assert_eq!(flop, u128::from(4 * shape.heads * shape.head_dim * pairs), "{}", name);
            // A decoded token reads what it scores.
            let read = whole(Operator::Attention, shape, &Step::decode(1, past)).kv_read;
            prop_assert_eq!(read, Bytes::new(2 * shape.head_dim * seen(past + 1)));
        }
    }

    #[test]
    fn an_indexer_scores_every_token_and_attention_the_chosen_ones(new in 1..99_u64, past in 0..9000_u64) {
        for name in ["deepseek-v3.2", "glm-5.2", "minimax-m3"] {
            let model = Model::preset(name).unwrap();
            for shape in model.shapes() {
                let Some(index) = shape.index else { continue };
                let step = Step { past_tokens: past, phase: Phase::Decode, ..Step::prefill(1, new) };
                let pairs = |most: u64| (past + 1..=past + new).map(|seen| seen.min(most)).sum::<u64>();
                let scores = whole(Operator::IndexScores, shape, &step).flop.get();
                prop_assert_eq!(scores, u128::from(2 * index.heads * (index.dim + 1) * pairs(u64::MAX)));
                let each = match shape.mixer {
                    Mixer::Latent(latent) => 2 * shape.heads * (2 * latent.kv_rank + latent.rope_dim),
                    _ => 4 * shape.heads * shape.head_dim,
                };
                let attention = whole(Operator::Attention, shape, &step).flop.get();
                prop_assert_eq!(attention, u128::from(each * pairs(index.selected)), "{}", name);
            }
        }
    }

    #[test]
    fn shares_of_ranks_add_up_to_the_work(name in names(), power in 1..4_u32, past in 0..5000_u64) {
        let model = Model::preset(name).unwrap();
        let ranks = 1_u64 << power;
        if model.check_ranks(ranks).is_err() {
            return Ok(());
        }
        let share = model.rank_share(ranks);
        let step = Step::decode(8, past.min(model.max_positions - 1));
        for (shape, part) in model.shapes().iter().zip(share.shapes()) {
            for sublayer in shape.blocks_sublayers() {
                for operator in sublayer.operators(shape) {
                    let [all, one] = [shape, part].map(|shape| whole(*operator, shape, &step).flop.get());
                    let ranks = u128::from(ranks);
                    prop_assert!(one <= all && one * ranks >= all, "{name} {operator}: {one} of {all}");
                }
            }
        }
    }
}

/// Sublayers of a shape that is not asked by its kind.
trait Blocks {
    fn blocks_sublayers(&self) -> Vec<Sublayer>;
}

impl Blocks for Model {
    fn blocks_sublayers(&self) -> Vec<Sublayer> {
        let alone = self.clone();
        alone.kinds().flat_map(|(kind, _)| kind.sublayers().iter().copied()).collect()
    }
}

#[test]
fn chunks_of_a_recurrence_cost_more_flop_than_its_tokens_in_turn_only_within_bounds() {
    for recurrence in [
        Recurrence::GatedDelta { key_heads: 16, value_heads: 32, key_dim: 128, value_dim: 128, taps: 4 },
        Recurrence::KimiDelta { heads: 96, head_dim: 128, taps: 4, full_gate: true, full_decay: false },
        Recurrence::Mamba2 { heads: 64, head_dim: 64, groups: 8, state: 128, taps: 4 },
    ] {
        let ratio = recurrence.flop_in_chunks() as f64 / recurrence.flop_in_turn() as f64;
        assert!((1.0..8.0).contains(&ratio), "{recurrence:?}: {ratio}");
    }
}
