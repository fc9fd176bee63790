//! Laws of attention's times and of the tables they come from.

use hwprofiles::{
    AttentionPoint, AttentionRates, AttentionShape, FileError, Phase, Provenance, Seconds, yaml,
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
