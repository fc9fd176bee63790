//! Mixtures of experts and latent attention: published sizes, and laws of their work.

use crate::AnyMachine;
use hwprofiles::DType;
use proptest::prelude::*;
use scenarios::{
    Document, Experts, Formats, LayerBlocks, Model, Operator, Phase, Shape, Step, Sublayer, WeightFormats,
    Work, kv_bytes,
};

const BF16: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

fn preset(name: &str) -> Model {
    Model::preset(name).unwrap()
}

fn whole(operator: Operator, model: &Model, step: &Step) -> Work {
    let rows = operator.sublayer().matrix(model).map_or(0, |(rows, _)| rows);
    Work::count(operator, model, &BF16, step, &(0..rows))
}

/// Work of the experts `range` for `tokens` tokens.
fn work(model: &Model, range: std::ops::Range<u64>, tokens: u64) -> Work {
    Work::count(Operator::Experts, model, &BF16, &Step::prefill(1, tokens), &range)
}

#[test]
fn sizes_are_the_published_ones() {
    // Billions of parameters: of the model, and used by one token.
    for (name, total, active) in [
        ("mixtral-8x7b", 46.7, 12.9),
        ("mixtral-8x22b", 140.6, 39.2),
        ("qwen3-30b-a3b", 30.5, 3.3),
        ("qwen3-235b-a22b", 235.1, 22.2),
        ("deepseek-v2-lite", 15.7, 2.7),
        ("deepseek-v3", 671.0, 37.5),
    ] {
        let model = preset(name);
        let billions = |elements: hwprofiles::Elements| elements.as_f64() / 1e9;
        // These cards count the token table as active.
        let table = (model.vocab * model.hidden) as f64 / 1e9;
        let (all, one) = (billions(model.parameters()), billions(model.active_parameters()) + table);
        assert!((all - total).abs() < 0.06, "{name}: {all} of {total}");
        assert!((one - active).abs() < 0.06, "{name}: {one} of {active} active");
    }
}

#[test]
fn gpt_oss_has_the_published_sizes_where_its_token_table_does_not_count_as_active() {
    for (name, total, active) in [("gpt-oss-20b", 20.9, 3.6), ("gpt-oss-120b", 116.8, 5.1)] {
        let model = preset(name);
        let (all, one) = (model.parameters().as_f64(), model.active_parameters().as_f64());
        assert!((all / 1e9 - total).abs() < 0.06, "{name}: {all}");
        assert!((one / 1e9 - active).abs() < 0.06, "{name}: {one}");
    }
}

#[test]
fn dense_layers_stand_in_front() {
    let deepseek = preset("deepseek-v3");
    let blocks =
        |model: &Model| model.kinds().map(|(kind, layers)| (kind.blocks, layers)).collect::<Vec<_>>();
    assert_eq!(blocks(&deepseek), [(LayerBlocks::Dense, 3), (LayerBlocks::SharedExperts, 58)]);
    let (first, last) = (deepseek.kind(2), deepseek.kind(3));
    assert_eq!((first.blocks, last.blocks), (LayerBlocks::Dense, LayerBlocks::SharedExperts));
    assert_eq!(deepseek.layers_of(last).collect::<Vec<_>>(), (3..61).collect::<Vec<_>>());
    assert_eq!(blocks(&preset("mixtral-8x7b")), [(LayerBlocks::Experts, 32)]);
    assert_eq!(blocks(&preset("llama-3.1-8b")), [(LayerBlocks::Dense, 32)]);
    let all = deepseek.sublayers();
    assert_eq!((all[0], all[all.len() - 1], all.len()), (Sublayer::Embed, Sublayer::Head, 10));
}

#[test]
fn a_skewed_scenario_skews_the_model_and_a_dense_model_has_nothing_to_skew() {
    let text = |model: &str, skew: &str| {
        format!(
            "machine: this\nmodel: {model}\nexpert_skew: {skew}\nworkload: {{batch: 1, prompt_tokens: 8, output_tokens: 8}}\n"
        )
    };
    let read = |text: String| Document::from_yaml("s.yaml", &text).and_then(|d| d.scenario());
    let resolve = |text: String| read(text).and_then(|scenario| scenario.resolve(&AnyMachine));
    let skewed = resolve(text("mixtral-8x7b", "0.8")).unwrap().model;
    assert_eq!(skewed.experts.as_ref().unwrap().skew(), 0.8);
    assert_ne!(skewed.fingerprint(), preset("mixtral-8x7b").fingerprint());
    assert_eq!(resolve(text("mixtral-8x7b", "0")).unwrap().model, preset("mixtral-8x7b"));
    let dense = resolve(text("llama-3.1-8b", "0.8")).unwrap_err().to_string();
    assert!(dense.contains("s.yaml:3") && dense.contains("llama-3.1-8b has no experts"), "{dense}");
    let negative = read(text("mixtral-8x7b", "-1")).unwrap_err().to_string();
    assert!(negative.contains("expert_skew is -1: a number from 0"), "{negative}");
}

#[test]
fn a_token_is_a_product_with_the_experts_it_goes_to() {
    let model = preset("mixtral-8x7b");
    let one = work(&model, 0..8, 1);
    assert_eq!(one.shape, Shape::Gemm { m: 1, n: 2 * 3 * 14336, k: 4096 });
    assert_eq!(one.weights, DType::Bf16.matrix_bytes(2, 3 * 14336 * 4096));
    assert_eq!(one.flop.get(), 2 * 2 * 3 * 14336 * 4096);
    // A long prompt reads every expert; each has a quarter of the tokens.
    let many = work(&model, 0..8, 4096);
    assert_eq!(many.shape, Shape::Gemm { m: 1024, n: 8 * 3 * 14336, k: 4096 });
}

#[test]
fn latent_attention_keeps_576_numbers_and_its_shapes_cost_what_it_costs() {
    let model = preset("deepseek-v3");
    assert_eq!(kv_bytes(&model, &BF16, 2, 10), hwprofiles::Bytes::new(2 * 10 * 576 * 2));
    let latent = model.latent().unwrap();
    assert_eq!(Sublayer::Out.matrix(&model), Some((7168, 128 * 128)));
    // The products in front are four matrices: queries down and up, latent vectors down and up.
    let chain = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256;
    // The last one is kept with attention, which absorbs it in decode.
    let expansion = 512 * 128 * 256;
    assert_eq!(Sublayer::Qkv.numbers(&model), chain - expansion);
    let vectors = Sublayer::Attention.vector_bytes(&model).get() / 4;
    assert_eq!(vectors, expansion);
    let step = Step::decode(4, 999);
    let decode = whole(Operator::Attention, &model, &step);
    assert_eq!(decode.flop.get(), 4 * 2 * 128 * u128::from(2 * latent.kv_rank + latent.rope_dim) * 1000);
    let Shape::Attention(shape) = decode.shape else { panic!("{:?}", decode.shape) };
    assert_eq!(BF16.kv.bytes(shape.kv_elements()), decode.kv_read);
    let prefill = whole(Operator::Attention, &model, &Step::prefill(1, 100));
    assert_eq!(prefill.flop.get(), 2 * 128 * (128 + 64 + 128) * 5050);
    for work in [decode, prefill] {
        let Shape::Attention(shape) = work.shape else { panic!("{:?}", work.shape) };
        let ratio = shape.flop().get() as f64 / work.flop.get() as f64;
        assert!((1.0..1.005).contains(&ratio), "{ratio}");
    }
    assert_eq!(shape.phase, Phase::Decode);
}

fn skews() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..3.0_f64]
}

proptest! {
    #![proptest_config(crate::cases(256))]

    #[test]
    fn every_token_goes_to_as_many_experts_as_it_should(
        count in 1..300_u64, picks in 0.0..1.0_f64, skew in skews(), tokens in 1..5000_u64,
    ) {
        let per_token = 1 + (picks * (count - 1) as f64) as u64;
        let experts = Experts::new(count, per_token, 64).with_skew(skew);
        let all = experts.traffic(&(0..count), tokens);
        prop_assert!((all.pairs / (tokens * per_token) as f64 - 1.0).abs() < 1e-9, "{all:?}");
        prop_assert!(all.touched <= count as f64 + 1e-9 && all.touched >= per_token as f64 - 1e-6, "{all:?}");
        let more = experts.traffic(&(0..count), tokens + 1);
        prop_assert!(more.touched >= all.touched && more.pairs > all.pairs);
        // Popularity falls with the index, and no token chooses an expert twice.
        let each: Vec<_> = (0..count).map(|e| experts.traffic(&(e..e + 1), tokens).pairs).collect();
        prop_assert!(each.windows(2).all(|pair| pair[0] >= pair[1] - 1e-6), "{each:?}");
        prop_assert!(each[0] <= tokens as f64 * (1.0 + 1e-9));
    }

    #[test]
    fn parts_of_the_experts_add_up_to_all_of_them(
        name in prop::sample::select(vec!["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b"]),
        skew in skews(), tokens in 1..3000_u64, cut in 0.0..1.0_f64,
    ) {
        let model = preset(name).with_expert_skew(skew);
        let count = model.experts.as_ref().unwrap().count;
        let at = (count as f64 * cut) as u64;
        let (all, hot, cold) =
            (work(&model, 0..count, tokens), work(&model, 0..at, tokens), work(&model, at..count, tokens));
        let near = |parts: f64, all: f64| (parts - all).abs() <= 3.0 + 1e-9 * all;
        prop_assert!(near((hot.flop + cold.flop).get() as f64, all.flop.get() as f64));
        prop_assert!(near((hot.weights + cold.weights).as_f64(), all.weights.as_f64()));
        // Both parts read the whole input.
        let input = work(&model, 0..0, tokens).activations;
        let parts = hot.activations + cold.activations;
        let rounding = 100.0;
        prop_assert!((parts.as_f64() - (all.activations + input).as_f64()).abs() <= rounding);
        let more = work(&model, 0..count, tokens + 1);
        prop_assert!(more.flop > all.flop && more.weights >= all.weights && more.activations > all.activations);
        let Shape::Gemm { m, n, k } = all.shape else { panic!("{:?}", all.shape) };
        prop_assert!(u128::from(2 * m) * u128::from(n) * u128::from(k) >= all.flop.get());
    }

    #[test]
    fn a_hot_half_has_more_traffic_than_a_cold_one_under_skew(skew in 0.1..3.0_f64, tokens in 1..500_u64) {
        let model = preset("qwen3-30b-a3b").with_expert_skew(skew);
        let (hot, cold) = (work(&model, 0..64, tokens), work(&model, 64..128, tokens));
        prop_assert!(hot.flop > cold.flop && hot.weights >= cold.weights);
        let even = preset("qwen3-30b-a3b");
        prop_assert_eq!(work(&even, 0..64, tokens), work(&even, 64..128, tokens));
    }

    #[test]
    fn parts_of_the_shared_expert_add_up(tokens in 1..500_u64, cut in 0..=2048_u64) {
        let model = preset("deepseek-v3");
        let part = |rows| Work::count(Operator::SharedExpert, &model, &BF16, &Step::prefill(1, tokens), &rows);
        let (all, left, right) = (part(0..2048), part(0..cut), part(cut..2048));
        prop_assert_eq!(left.flop + right.flop, all.flop);
        prop_assert_eq!(left.weights + right.weights, all.weights);
        prop_assert_eq!(all.flop.get(), u128::from(tokens) * 2 * 3 * 2048 * 7168);
        prop_assert_eq!(left.activations + right.activations, all.activations + part(0..0).activations);
    }
}
