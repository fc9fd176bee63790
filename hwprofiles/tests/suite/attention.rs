//! Laws of attention's times and of the tables they come from.

use hwprofiles::{
    AttentionPoint, AttentionRates, AttentionShape, Basis, Bound, FileError, Phase, Provenance, Seconds, yaml,
};
use proptest::prelude::*;

const HEADER: &str = "phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim,time_us";

fn shapes() -> impl Strategy<Value = AttentionShape> {
    let sizes = (1u64..300, 1u64..20_000, 0u64..100_000);
    let heads = (prop::sample::select(vec![1u64, 2, 8]), 1u64..9, prop::sample::select(vec![64u64, 128]));
    (any::<bool>(), sizes, heads).prop_map(
        |(prefill, (batch, new, past_tokens), (kv_heads, group, head_dim))| {
            let (phase, new_tokens) = if prefill { (Phase::Prefill, new) } else { (Phase::Decode, 1) };
            AttentionShape {
                phase,
                batch,
                new_tokens,
                past_tokens,
                heads: kv_heads * group,
                kv_heads,
                head_dim,
            }
        },
    )
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn a_table_reads_back_as_it_was_written(times in prop::collection::btree_map(shapes(), 1e-7..1.0f64, 1..20)) {
        let point = |(shape, time)| AttentionPoint { shape, time: Seconds::new(time) };
        let points: Vec<_> = times.into_iter().map(point).collect();
        let rates = AttentionRates::new(Provenance::Estimated { reason: "test".to_owned() }, points);
        prop_assert_eq!(yaml::read::<AttentionRates>(&yaml::write(&rates), "rates").unwrap(), rates);
    }
}

fn read(header: &str, rows: &[&str]) -> Result<AttentionRates, FileError> {
    let lines = rows.iter().map(|row| format!("  {row}\n")).collect::<String>();
    yaml::read(
        &format!("source: {{estimated: {{reason: test}}}}\npoints: |\n  {header}\n{lines}"),
        "rates.yaml",
    )
}

#[test]
fn a_bad_table_gets_one_message_with_its_place_and_what_would_be_right() {
    let row = |row: &str| read(HEADER, &["decode,1,1,9,8,2,64,5", row]).unwrap_err().to_string();
    insta::assert_snapshot!(
        [
            read(HEADER, &[]).unwrap_err().to_string(),
            read("phase,batch", &["decode,1"]).unwrap_err().to_string(),
            row("decode,1,1,99,8,2,64,0"),
            row("decode,1,1,99,8,2,64,-3"),
            row("decode,1,1,99,8,2,64,NaN"),
            row("decode,1,1,99,8,2,64,1e999"),
            row("decode,1,1,99,8,2,64,5 us"),
            row("decode,1,1,99,8,2,64"),
            row("decode,0,1,99,8,2,64,5"),
            row("decode,1,1,99,8,2,2.5,5"),
            row("decode,1,1,99,8,3,64,5"),
            row("decode,1,2,99,8,2,64,5"),
            row("verify,1,2,99,8,2,64,5"),
            row("decode,99999999999,1,99,8,2,64,5"),
            row("decode,1,1,9,8,2,64,10.1"),
        ]
        .join("\n")
    );
}

#[test]
fn of_several_times_of_one_shape_the_median_stands() {
    let rows =
        ["decode,1,1,9,8,2,64,5", "prefill,1,9,0,8,2,64,9", "decode,1,1,9,8,2,64,7", "decode,1,1,9,8,2,64,6"];
    let rates = read(HEADER, &rows).unwrap();
    let times: Vec<_> = rates.points().iter().map(|p| (p.shape.phase, p.time.get() * 1e6)).collect();
    assert_eq!(times, [(Phase::Prefill, 9.0), (Phase::Decode, 6.0)]);
}

#[test]
fn the_grouping_of_heads_most_like_the_wanted_answers() {
    let point = |past_tokens, kv_heads, time| {
        let (heads, head_dim) = (16, 64);
        let shape = AttentionShape {
            phase: Phase::Decode,
            batch: 1,
            new_tokens: 1,
            past_tokens,
            heads,
            kv_heads,
            head_dim,
        };
        AttentionPoint { shape, time: Seconds::new(time) }
    };
    // The groupings have caches of equal sizes, but differ fourfold in the work per element.
    let points = vec![point(99, 16, 1.0), point(199, 16, 2.0), point(399, 4, 4.0), point(799, 4, 8.0)];
    let rates = AttentionRates::new(Provenance::Estimated { reason: "test".to_owned() }, points);
    let time =
        |past_tokens, kv_heads| rates.time(&point(past_tokens, kv_heads, 1.0).shape).expect("known").time;
    assert_eq!(time(149, 16), Seconds::new(1.5));
    assert_eq!(time(599, 4), Seconds::new(6.0));
    // Eight query heads per KV head are closer to four than to one.
    assert_eq!(time(1199, 2), Seconds::new(6.0));
}

/// A decode takes the start of each of its sequences plus the reading of its cache. Two short
/// decodes of one sequence give both, for any number of sequences of any length.
#[test]
fn beginning_with_a_sequence_costs_the_same_wherever_it_is() {
    let decode = |batch: u64, past_tokens: u64| AttentionShape {
        phase: Phase::Decode,
        batch,
        new_tokens: 1,
        past_tokens,
        heads: 16,
        kv_heads: 4,
        head_dim: 64,
    };
    let time = |s: &AttentionShape| Seconds::new(1e-6 * s.batch as f64 * (7.0 + 0.2 * s.tokens() as f64));
    let measured = [decode(1, 31), decode(1, 127), decode(4, 2047)];
    let points = measured.map(|shape| AttentionPoint { shape, time: time(&shape) });
    let rates = AttentionRates::new(Provenance::Estimated { reason: "test".to_owned() }, points.to_vec());
    for (batch, past_tokens) in [(1, 3), (1, 63), (16, 3), (16, 40), (3, 900), (64, 4000)] {
        let shape = decode(batch, past_tokens);
        let (got, wanted) = (rates.time(&shape).unwrap().time.get(), time(&shape).get());
        assert!((got / wanted - 1.0).abs() < 1e-9, "{shape}: {got} and not {wanted}");
    }
}

/// The time on a GPU in seconds: a fixed part, and the longer of reading and computing. Eight
/// sequences at once take hardly longer than one.
fn on_a_gpu(s: &AttentionShape) -> f64 {
    let read = s.kv_elements().as_f64() * 2.0 / 2e12;
    30e-6 + read.max(s.flop().as_f64() / 2e14)
}

fn of_heads(phase: Phase, [batch, new_tokens, past_tokens]: [u64; 3]) -> AttentionShape {
    AttentionShape { phase, batch, new_tokens, past_tokens, heads: 32, kv_heads: 8, head_dim: 128 }
}

/// Several batches at several lengths, and prompts behind several pasts.
fn grid() -> AttentionRates {
    let lengths = || [32, 128, 512, 2048, 8192, 16384].into_iter();
    let decodes = [1, 4, 16, 64].into_iter().flat_map(|batch| lengths().map(move |tokens| (batch, tokens)));
    let decodes = decodes.map(|(batch, tokens)| of_heads(Phase::Decode, [batch, 1, tokens - 1]));
    let new = [32, 128, 512, 2048, 4096].into_iter();
    let prompts = new.flat_map(|new| [0, 4096, 12_288].map(|past| of_heads(Phase::Prefill, [1, new, past])));
    let several =
        [(16, 32), (64, 32), (8, 512)].map(|(batch, new)| of_heads(Phase::Prefill, [batch, new, 0]));
    let point = |shape| AttentionPoint { shape, time: Seconds::new(on_a_gpu(&shape)) };
    let source = Provenance::Measured { date: "2026-11-21".into(), command: "bench".into(), spread: 0.0 };
    AttentionRates::new(source, decodes.chain(prompts).chain(several).map(point).collect())
}

fn decodes() -> impl Strategy<Value = AttentionShape> {
    (1u64..300, 1u64..40_000).prop_map(|(batch, past)| of_heads(Phase::Decode, [batch, 1, past]))
}

fn prompts() -> impl Strategy<Value = AttentionShape> {
    let sizes = (1u64..40, 2u64..9000, 0u64..40_000);
    sizes.prop_map(|(batch, new, past)| of_heads(Phase::Prefill, [batch, new, past]))
}

proptest! {
    #![proptest_config(crate::cases(256))]

    #[test]
    fn on_a_grid_more_tokens_and_more_sequences_never_take_less(
        shape in prop_oneof![decodes(), prompts()],
        more in 1u64..9000,
    ) {
        let rates = grid();
        let time = |shape: &AttentionShape| rates.time(shape).unwrap().time.get();
        let longer = AttentionShape { past_tokens: shape.past_tokens + more, ..shape };
        let several = AttentionShape { batch: shape.batch + more, ..shape };
        for larger in [longer, several] {
            let (less, more) = (time(&shape), time(&larger));
            prop_assert!(more >= less * (1.0 - 1e-12), "{}: {}; {}: {}", shape, less, larger, more);
        }
    }

    #[test]
    fn on_a_grid_a_time_between_points_is_near_and_none_is_below_the_shortest(
        decode in decodes(),
        prompt in prompts(),
    ) {
        let rates = grid();
        let shortest = rates.points().iter().map(|p| p.time).min_by(Seconds::total_cmp).unwrap();
        for shape in [decode, prompt] {
            let estimate = rates.time(&shape).unwrap();
            prop_assert!(estimate.time >= shortest, "{}: {}", shape, estimate.time);
            let ratio = estimate.time.get() / on_a_gpu(&shape);
            if estimate.basis == Basis::Interpolated {
                prop_assert!((0.9..1.35).contains(&ratio), "{}: {}", shape, ratio);
            }
        }
    }
}

#[test]
fn on_a_grid_a_measured_point_has_its_time_and_short_sequences_run_side_by_side() {
    let rates = grid();
    for point in rates.points() {
        let estimate = rates.time(&point.shape).unwrap();
        assert_eq!((estimate.time, estimate.basis), (point.time, Basis::Measured), "{}", point.shape);
    }
    let time = |batch| rates.time(&of_heads(Phase::Decode, [batch, 1, 200])).unwrap();
    assert!(time(8).time < time(1).time * 1.1, "{} and {}", time(8).time, time(1).time);
    // What does not depend on the bytes stays where they are fewer.
    assert_eq!(time(1).bound, Bound::Launch);
    let long = rates.time(&of_heads(Phase::Decode, [64, 1, 10_000])).unwrap();
    assert_eq!((long.bound, long.basis), (Bound::Memory, Basis::Interpolated));
    // The heads of a smaller model: a narrower decode takes as long as one with as many bytes.
    let small = AttentionShape { heads: 8, kv_heads: 2, ..of_heads(Phase::Decode, [1, 1, 16_383]) };
    let as_many_bytes = of_heads(Phase::Decode, [1, 1, 4095]);
    assert_eq!(rates.time(&small).unwrap().time, rates.time(&as_many_bytes).unwrap().time);
}
