//! Laws of the count of work, tested on random models.

use hwprofiles::{Bytes, DType, Flop};
use proptest::prelude::*;
use scenarios::{
    Activation, Architecture, BlockOrder, Formats, LayerKind, LayerShapes, Mixer, Model, Norm, Operator,
    Positions, Shape, SlidingWindow, Step, Sublayer, WeightClass, WeightFormat, WeightFormats, Wiring, Work,
    Workload, kv_bytes,
};

const BLOCKS: [BlockOrder; 3] = [BlockOrder::Sequential, BlockOrder::Parallel, BlockOrder::ParallelOneNorm];

prop_compose! {
    fn models()(
        family in 0..4_usize,
        (block, partial, head_bias) in (prop::sample::select(BLOCKS.to_vec()), any::<bool>(), any::<bool>()),
        (kv_heads, queries_per_kv) in (1..5_u64, 1..5_u64),
        half_head in 1..40_u64,
        hidden in 1..300_u64,
        intermediate in 1..500_u64,
        vocab in 1..700_u64,
        layers in 1..6_u64,
        (tied, bias) in any::<(bool, bool)>(),
    ) -> Model {
        let opt = family == 3;
        let heads = if opt { kv_heads } else { kv_heads * queries_per_kv };
        Model {
            name: "random".to_owned(),
            architecture: [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3, Architecture::Opt][family],
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim: 2 * half_head,
            intermediate,
            vocab,
            max_positions: 1 << 32,
            norm: if opt { Norm::Layer } else { Norm::Rms },
            norm_eps: 1e-5,
            activation: if opt { Activation::Relu } else { Activation::SiluGated },
            positions: match opt {
                true => Positions::Learned { offset: 2 },
                false => Positions::Rotary { theta: 1e4, scaling: None },
            },
            qkv_bias: bias || family == 1,
            out_bias: bias,
            ffn_bias: bias,
            qk_norm: family == 2,
            tied_embeddings: tied,
            dtype: DType::Bf16,
            published: None,
            experts: None,
            mixer: Mixer::Attention,
            index: None,
            mtp: 0,
            beams: 1,
            shapes: LayerShapes::default(),
            wiring: Wiring {
                block,
                rotary_dim: (partial && half_head > 1).then_some(half_head / 2 * 2),
                head_bias: head_bias && !tied,
                ..Wiring::default()
            },
        }
    }
}

fn formats() -> impl Strategy<Value = Formats> {
    let any = || prop::sample::select(DType::ALL.to_vec());
    let weights = (any(), any(), any(), any()).prop_map(|(attention, ffn, experts, ends)| {
        let set = |weights: WeightFormats, (class, dtype)| weights.with(class, dtype);
        let formats = WeightClass::ALL.into_iter().zip([attention, ffn, experts, ends]);
        formats.fold(WeightFormats::all(ends), set)
    });
    (weights, any(), any()).prop_map(|(weights, kv, activations)| Formats { weights, kv, activations })
}

/// Bytes of the token table.
fn own_table(model: &Model, formats: &Formats) -> Bytes {
    Sublayer::Embed.matrix_bytes(model, formats.weights, &rows(Sublayer::Embed, model))
}

fn rows(sublayer: Sublayer, model: &Model) -> std::ops::Range<u64> {
    0..sublayer.matrix(model).map_or(0, |(rows, _)| rows)
}

fn whole(operator: Operator, model: &Model, formats: &Formats, step: &Step) -> Work {
    Work::count(operator, model, formats, step, &rows(operator.sublayer(), model))
}

/// The work of one dense layer's operators.
fn layer(model: &Model, formats: &Formats, step: &Step) -> Vec<Work> {
    kind_of_layer(model.kind(0), model, formats, step)
}

fn kind_of_layer(kind: LayerKind, model: &Model, formats: &Formats, step: &Step) -> Vec<Work> {
    let shape = model.shape(kind);
    let operators = kind.sublayers().iter().flat_map(|sublayer| sublayer.operators(shape));
    operators.map(|operator| whole(*operator, shape, formats, step)).collect()
}

fn layer_flop(model: &Model, formats: &Formats, step: &Step) -> Flop {
    layer(model, formats, step).iter().map(|work| work.flop).sum()
}

fn matrix_parameters(model: &Model) -> u128 {
    let matrices = Sublayer::DENSE.iter().filter_map(|sublayer| sublayer.matrix(model));
    matrices.map(|(rows, columns)| u128::from(rows * columns)).sum()
}

/// Keys that the new tokens of `step` attend to in a layer with this window, counted one by one.
fn attended_keys(window: SlidingWindow, step: &Step) -> u64 {
    let seen = |token: u64| match window.chunked {
        true => (step.past_tokens + token) % window.tokens + 1,
        false => (step.past_tokens + token + 1).min(window.tokens),
    };
    step.batch * (0..step.new_tokens).map(seen).sum::<u64>()
}

proptest! {
    #![proptest_config(crate::cases(256))]

    #[test]
    fn attention_with_a_window_scores_what_each_token_sees(
        model in models(), formats in formats(), batch in 1..5_u64, new in 1..90_u64, past in 0..99_u64,
        tokens in 1..120_u64, chunked in any::<bool>(),
    ) {
        let window = SlidingWindow { tokens, chunked };
        let windowed = Model { wiring: Wiring { window: Some(window), ..model.wiring }, ..model.clone() };
        let step = Step { past_tokens: past, ..Step::prefill(batch, new) };
        let work = whole(Operator::Attention, &windowed, &formats, &step);
        let exact = 4 * model.heads * model.head_dim * attended_keys(window, &step);
        prop_assert_eq!(work.flop.get(), u128::from(exact));
        let Shape::Attention(shape) = work.shape else { panic!("attention") };
        // The shape is rounded up to whole tokens for all its queries.
        let most = work.flop + Flop::new(u128::from(4 * model.heads * model.head_dim * batch * 4 * new));
        prop_assert!(shape.flop() >= work.flop && shape.flop() <= most, "{shape}: {}, {}", shape.flop(), work.flop);
        let plain = whole(Operator::Attention, &model, &formats, &step);
        prop_assert!(work.kv_read <= plain.kv_read && work.flop <= plain.flop);
        if tokens >= past + new {
            prop_assert_eq!(work, plain);
        }
        // A decode step reads the keys that it attends to.
        let one = Step::decode(batch, past);
        let kv = whole(Operator::Attention, &windowed, &formats, &one).kv_read;
        prop_assert_eq!(kv, kv_bytes(&model, &formats, batch, attended_keys(window, &one) / batch));
        prop_assert_eq!(kv, kv_bytes(&model, &formats, batch, window.seen(past)));
    }

    #[test]
    fn a_prefill_costs_two_flop_per_parameter_and_token_and_the_attention_below_the_diagonal(
        model in models(), formats in formats(), batch in 1..9_u64, tokens in 1..300_u64,
    ) {
        let step = Step::prefill(batch, tokens);
        let (b, n) = (u128::from(batch), u128::from(tokens));
        let attention = 4 * b * u128::from(model.heads * model.head_dim) * (n * (n + 1) / 2);
        let expected = 2 * matrix_parameters(&model) * b * n + attention;
        prop_assert_eq!(layer_flop(&model, &formats, &step).get(), expected);
        let head = whole(Operator::HeadProj, &model, &formats, &step).flop.get();
        prop_assert_eq!(head, 2 * b * u128::from(model.vocab * model.hidden));
    }

    #[test]
    fn a_prefill_is_the_sum_of_its_tokens_decoded_one_by_one(
        model in models(), formats in formats(), batch in 1..9_u64, tokens in 1..60_u64,
    ) {
        let at_once = layer_flop(&model, &formats, &Step::prefill(batch, tokens));
        let steps = (0..tokens).map(|past| Step::decode(batch, past));
        prop_assert_eq!(steps.map(|step| layer_flop(&model, &formats, &step)).sum::<Flop>(), at_once);
    }

    #[test]
    fn a_prefill_is_the_sum_of_its_chunks(
        model in models(), formats in formats(), batch in 1..9_u64, first in 1..200_u64, second in 1..200_u64,
    ) {
        let chunk = Step { past_tokens: first, ..Step::prefill(batch, second) };
        let parts = layer_flop(&model, &formats, &Step::prefill(batch, first)) + layer_flop(&model, &formats, &chunk);
        prop_assert_eq!(parts, layer_flop(&model, &formats, &Step::prefill(batch, first + second)));
    }

    #[test]
    fn splitting_rows_conserves_flop_weights_and_output(
        model in models(), formats in formats(), batch in 1..9_u64, tokens in 1..50_u64, cut in 0.0..1.0_f64,
    ) {
        let step = Step::prefill(batch, tokens);
        // Formats with groups pad rows, so that parts would be larger than the whole.
        let formats = Formats { activations: DType::F32, ..formats };
        for operator in [Operator::QkvProj, Operator::OutProj, Operator::UpProj, Operator::DownProj, Operator::HeadProj] {
            let all = rows(operator.sublayer(), &model);
            let at = (all.end as f64 * cut) as u64;
            let whole = Work::count(operator, &model, &formats, &step, &all);
            let left = Work::count(operator, &model, &formats, &step, &(0..at));
            let right = Work::count(operator, &model, &formats, &step, &(at..all.end));
            prop_assert_eq!(left.flop + right.flop, whole.flop);
            prop_assert_eq!(left.weights + right.weights, whole.weights);
            // Both sides read the whole input.
            let input = Work::count(operator, &model, &formats, &step, &(0..0)).activations;
            prop_assert_eq!(left.activations + right.activations, whole.activations + input);
        }
    }

    #[test]
    fn kv_is_written_once_and_read_whole(
        model in models(), weights in formats(), batch in 1..9_u64, new in 1..99_u64, past in 0..99_u64,
    ) {
        let formats = Formats { kv: DType::Bf16, ..weights };
        let step = Step { past_tokens: past, ..Step::prefill(batch, new) };
        let token = 2 * batch * model.kv_heads * model.head_dim * 2;
        let all = layer(&model, &formats, &step);
        prop_assert_eq!(all.iter().map(|w| w.kv_written).sum::<Bytes>(), Bytes::new(token * new));
        prop_assert_eq!(all.iter().map(|w| w.kv_read).sum::<Bytes>(), Bytes::new(token * (past + new)));
        prop_assert_eq!(kv_bytes(&model, &formats, batch, past + new), Bytes::new(token * (past + new)));
    }

    #[test]
    fn grouped_kv_pads_each_head(model in models(), weights in formats(), batch in 1..9_u64, tokens in 1..99_u64) {
        for kv in [DType::Int8, DType::Int2] {
            let row = kv.matrix_bytes(1, model.head_dim);
            let rows = 2 * batch * tokens * model.kv_heads;
            prop_assert_eq!(kv_bytes(&model, &Formats { kv, ..weights }, batch, tokens), row * rows);
        }
    }

    #[test]
    fn a_layer_reads_its_weights_once_whatever_the_step(
        model in models(), formats in formats(), batch in 1..9_u64, tokens in 1..99_u64,
    ) {
        let work = layer(&model, &formats, &Step::prefill(batch, tokens));
        let vectors: Bytes = Sublayer::DENSE.iter().map(|sublayer| sublayer.vector_bytes(&model)).sum();
        prop_assert_eq!(work.iter().map(|w| w.weights).sum::<Bytes>() + vectors, model.layer_bytes(model.kind(0), &formats));
    }

    #[test]
    fn mixed_work_is_the_sum_of_what_each_class_is_in_its_format(
        model in models(), formats in formats(), batch in 1..9_u64, tokens in 1..99_u64,
    ) {
        let alone = |format: WeightFormat| Formats { weights: format.into(), ..formats };
        let step = Step::prefill(batch, tokens);
        let sublayers = [Sublayer::Embed, Sublayer::Head].into_iter().chain(Sublayer::DENSE);
        let mut bytes = Bytes::ZERO;
        for sublayer in sublayers {
            let own = alone(formats.weights.for_sublayer(sublayer));
            for operator in sublayer.operators(&model) {
                prop_assert_eq!(whole(*operator, &model, &formats, &step), whole(*operator, &model, &own, &step));
            }
            let layers = if Sublayer::DENSE.contains(&sublayer) { model.layers } else { 1 };
            bytes += model.sublayer_bytes(sublayer, &own) * layers;
        }
        let ends = alone(formats.weights.for_class(WeightClass::Ends));
        let twice = if model.tied_embeddings { own_table(&model, &ends) } else { Bytes::ZERO };
        prop_assert_eq!(model.weight_bytes(&formats) + twice, bytes);
    }

    #[test]
    fn weights_are_parameters_times_four_in_f32(model in models()) {
        let formats = Formats { weights: WeightFormats::all(DType::F32), kv: DType::F32, activations: DType::F32 };
        prop_assert_eq!(model.weight_bytes(&formats), DType::F32.bytes(model.parameters()));
    }

    #[test]
    fn narrower_weights_never_take_more_bytes(model in models(), formats in formats()) {
        let bytes = |dtype: DType| model.weight_bytes(&Formats { weights: dtype.into(), ..formats });
        prop_assert!(bytes(DType::Bf16) < bytes(DType::F32));
        prop_assert_eq!(bytes(DType::Bf16), bytes(DType::F16));
        prop_assert!(bytes(DType::Int4) < bytes(DType::Int8));
    }

    #[test]
    fn work_grows_with_batch_and_context(
        model in models(), formats in formats(), batch in 1..9_u64, new in 1..99_u64, past in 0..99_u64,
        more in (0..4_u64, 0..9_u64, 0..9_u64),
    ) {
        let small = Step { past_tokens: past, ..Step::prefill(batch, new) };
        let large = Step { past_tokens: past + more.2, ..Step::prefill(batch + more.0, new + more.1) };
        for sublayer in [Sublayer::Embed, Sublayer::Head].iter().chain(&Sublayer::DENSE) {
            for operator in sublayer.operators(&model) {
                let (a, b) = (whole(*operator, &model, &formats, &small), whole(*operator, &model, &formats, &large));
                prop_assert!(a.flop <= b.flop && a.weights <= b.weights && a.activations <= b.activations);
                prop_assert!(a.kv_read <= b.kv_read && a.kv_written <= b.kv_written);
            }
        }
    }

    #[test]
    fn an_accepted_workload_can_be_summed_without_overflow(
        model in models(), formats in formats(),
        batch in 1..=1_u64 << 20, prompt_tokens in 1..=1_u64 << 31, output_tokens in 1..=1_u64 << 31, scale in 0..40_u32,
    ) {
        let workload = Workload {
            batch,
            prompt_tokens: (prompt_tokens >> scale.min(30)).max(1),
            output_tokens: (output_tokens >> scale.min(30)).max(1), speculation: None };
        if workload.check(&model).is_ok() {
            total_bytes(&model, &formats, &workload);
        }
    }
}

/// Bytes of all work: the prefill, and every decode step as if it had the longest context. An
/// overflow panics here.
fn total_bytes(model: &Model, formats: &Formats, workload: &Workload) -> u64 {
    let last = Step::decode(workload.batch, workload.context() - 1);
    let step_bytes = |step: &Step| -> u64 {
        let ends = [Operator::Embed, Operator::HeadNorm, Operator::HeadProj];
        let ends = ends.map(|operator| whole(operator, model, formats, step));
        let sum = |works: &[Work]| -> u64 {
            let bytes = works.iter().map(|w| w.weights + w.kv_read + w.kv_written + w.activations);
            bytes.fold(0, |sum: u64, bytes| sum.checked_add(bytes.get()).unwrap())
        };
        let layers = model.kinds().map(|(kind, layers)| {
            sum(&kind_of_layer(kind, model, formats, step)).checked_mul(layers).unwrap()
        });
        layers.fold(sum(&ends), |sum, bytes| sum.checked_add(bytes).unwrap())
    };
    let decode = step_bytes(&last).checked_mul(workload.output_tokens).unwrap();
    step_bytes(&Step::prefill(workload.batch, workload.prompt_tokens)).checked_add(decode).unwrap()
}

#[test]
fn a_billion_tokens_in_ten_thousand_sequences_are_counted_or_refused() {
    let tiny = Model { max_positions: 1 << 32, ..Model::preset("fulcrum-tiny").unwrap() };
    let huge = Workload { batch: 10_000, prompt_tokens: 1_000_000_000, output_tokens: 1, speculation: None };
    let error = huge.check(&tiny).unwrap_err().to_string();
    assert!(error.contains("batch is 10000") && error.contains("make it smaller"), "{error}");
    // One step can still be counted; the sum over the whole run is refused.
    let formats =
        Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::F32 };
    let step = Step::prefill(10_000, 1_000_000_000);
    assert!(layer_flop(&tiny, &formats, &step).get() > u128::from(u64::MAX));
}

#[test]
fn every_preset_does_a_long_context_at_batch_64() {
    for name in Model::preset_names() {
        let model = Model::preset(name).unwrap();
        let workload = Workload {
            batch: 64,
            prompt_tokens: model.max_positions.min(1 << 18) - 100,
            output_tokens: 100,
            speculation: None,
        };
        workload.check(&model).unwrap();
        let formats =
            Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::F32 };
        assert!(total_bytes(&model, &formats, &workload) > 0);
    }
}

#[test]
fn a_context_beyond_the_positions_names_both() {
    let model = Model::preset("opt-6.7b").unwrap();
    let fits = Workload { batch: 1, prompt_tokens: 2000, output_tokens: 48, speculation: None };
    assert!(fits.check(&model).is_ok());
    let error = Workload { output_tokens: 49, ..fits }.check(&model).unwrap_err().to_string();
    assert_eq!(
        error,
        "workload: prompt_tokens is 2000: with output_tokens 49 it makes 2049, more than the 2048 positions of opt-6.7b"
    );
    for zero in [
        Workload { batch: 0, ..fits },
        Workload { prompt_tokens: 0, ..fits },
        Workload { output_tokens: 0, ..fits },
    ] {
        assert!(zero.check(&model).unwrap_err().to_string().contains("is 0: a whole number from 1"));
    }
}
