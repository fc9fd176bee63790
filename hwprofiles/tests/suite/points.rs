//! Measured points from CSV: what is read, what is refused, and what parts become of them.

use hwprofiles::{
    AttentionShape, BytesPerSec, DType, GpuPart, LinkPart, MeasuredPoints, MemoryId, Operation, Profile,
    Provenance, Seconds, shipped, yaml,
};
use proptest::prelude::*;

fn read(texts: &[&str]) -> Result<MeasuredPoints, String> {
    let mut points = MeasuredPoints::default();
    for (index, text) in texts.iter().enumerate() {
        points.read(text.as_bytes(), &format!("{index}.csv")).map_err(|error| error.to_string())?;
    }
    Ok(points)
}

fn source() -> Provenance {
    Provenance::Measured { date: "2026-11-21".to_owned(), command: "test".to_owned(), spread: 0.0 }
}

fn part(name: &str) -> GpuPart {
    let (_, text) = shipped().find(|(shipped, _)| *shipped == name).unwrap();
    match Profile::from_yaml(text, name).unwrap() {
        Profile::Gpu(gpu) => *gpu,
        other => panic!("{name} is {}", other.kind()),
    }
}

const HEADER: &str = "gpu,dtype,m,n,k,latency_us\n";

#[test]
fn points_come_by_gpu_and_repeats_become_their_median() {
    let rows = "H100_SXM,bf16,1,2,3,10\nh100-sxm,bf16,1,2,3,12\nh100-sxm,bf16,1,2,3,13\nl40s,bf16,1,2,3,99\n";
    let points = read(&[&(HEADER.to_owned() + rows)]).unwrap();
    let devices: Vec<_> = points.devices().collect();
    assert_eq!([devices[0].0, devices[1].0], ["h100-sxm", "l40s"]);
    let times: Vec<_> = devices[0].1.operations().collect();
    assert_eq!(times, [(Operation::Gemm { dtype: DType::Bf16, m: 1, n: 2, k: 3 }, Seconds::new(12e-6))]);
    assert!((devices[0].1.spread() - 0.25).abs() < 1e-9);
}

#[test]
fn bad_points_get_one_message_with_their_line_and_what_would_be_right() {
    let gemm = |rows: &str| HEADER.to_owned() + rows;
    let attention = "phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim,latency_us\n";
    let texts = [
        vec![gemm("")],
        vec!["dtype,m,n,k\nbf16,1,2,3\n".to_owned()],
        vec![gemm("h100,bf16,1,2,3,\n")],
        vec![gemm("h100,bf16,1,2,3,0\n")],
        vec![gemm("h100,bf16,1,2,3,-1\n")],
        vec![gemm("h100,bf16,1,2,3,NaN\n")],
        vec![gemm("h100,bf16,1,2,3,inf\n")],
        vec![gemm("h100,bf16,0,2,3,1\n")],
        vec![gemm(",bf16,1,2,3,1\n")],
        vec![gemm("h100,bf16,1,2,3,1\nh100,bf16,1,2,3,2.5\n")],
        vec![gemm("h100,bf16,1,2,3,5\n"), gemm("h200,bf16,1,2,3,1\nh100,bf16,1,2,3,1\n")],
        vec![format!("{attention}decode,1,1,9,8,3,64,5\n")],
        vec!["stream,bytes\nread,5\n".to_owned()],
        vec!["stream,bytes,gb_per_s\nwrite,5,5\n".to_owned()],
        vec!["stream,bytes,gb_per_s\nread,0,5\n".to_owned()],
        vec!["stream,bytes,gb_per_s\nread,5,0\n".to_owned()],
        vec!["direction,memory,bytes,latency_us\nup,pinned,5,5\n".to_owned()],
        vec!["direction,memory,bytes,latency_us\nh2d,paged,5,5\n".to_owned()],
        vec!["direction,memory,bytes,latency_us\nh2d,pinned,1.5,5\n".to_owned()],
        vec!["direction,memory,bytes,latency_us\nh2d,pinned,5,0\n".to_owned()],
    ];
    let message = |texts: &Vec<String>| {
        read(&texts.iter().map(String::as_str).collect::<Vec<_>>()).expect_err(&texts.join("\n"))
    };
    insta::assert_snapshot!(texts.iter().map(message).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_fitted_part_answers_with_its_points_and_reads_back_as_it_was_written() {
    let gemm = HEADER.to_owned()
        + "h100-sxm,bf16,1,4096,4096,14\nh100-sxm,bf16,64,4096,4096,16\nh100-sxm,bf16,4096,4096,4096,220\n";
    let attention = "gpu,phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim,latency_us\n\
                     h100-sxm,decode,8,1,1023,32,8,128,20\nh100-sxm,prefill,1,2048,0,32,8,128,60\n";
    let stream = "gpu,stream,bytes,gb_per_s\nh100-sxm,read,1e9,1\n";
    assert!(read(&[stream]).is_err(), "bytes are counted");
    let stream = "gpu,stream,bytes,gb_per_s\nh100-sxm,read,1000000,900\nh100-sxm,read,4000000000,3000\n";
    let points = read(&[&gemm, attention, stream]).unwrap();
    let (_, points) = points.devices().next().unwrap();
    let fitted = part("h100-sxm").fitted(points, &source()).unwrap();
    assert_eq!(fitted.bandwidth.value, BytesPerSec::new(3e12));
    let device = fitted.device(MemoryId(0));
    for (operation, time) in points.operations() {
        let estimate = operation.time_on(&device).unwrap();
        assert!((estimate.time / time - 1.0).abs() < 0.05, "{operation}: {estimate:?} {time}");
        assert!(estimate.low <= time && time <= estimate.high, "{operation}: {estimate:?} {time}");
    }
    match Profile::from_yaml(&yaml::write(&fitted), "written").unwrap() {
        Profile::Gpu(again) => {
            for (operation, _) in points.operations() {
                let (a, b) = (operation.time_on(&device), operation.time_on(&again.device(MemoryId(0))));
                assert!((a.unwrap().time / b.unwrap().time - 1.0).abs() < 1e-3, "{operation}");
            }
        }
        other => panic!("written as {}", other.kind()),
    }
}

#[test]
fn a_single_point_has_a_wide_band_away_from_itself() {
    let points = read(&[&(HEADER.to_owned() + "h100-sxm,bf16,64,4096,4096,16\n")]).unwrap();
    let (_, points) = points.devices().next().unwrap();
    let device = part("h100-sxm").fitted(points, &source()).unwrap().device(MemoryId(0));
    let far = device.gemm_time(DType::Bf16, 8192, 1024, 512).unwrap();
    assert!(far.high / far.low > 1.9, "{far:?}");
    let exact = device.gemm_time(DType::Bf16, 64, 4096, 4096).unwrap();
    assert_eq!(exact.time, Seconds::new(16e-6));
}

#[test]
fn a_gpu_of_which_too_little_is_known_is_refused_with_what_to_add() {
    let points = read(&["dtype,m,n,k,latency_us\nint4,1,2,3,4\n"]).unwrap();
    let (_, points) = points.devices().next().unwrap();
    let message = part("h100-sxm").fitted(points, &source()).unwrap_err().to_string();
    assert!(
        message.contains("h100-sxm") && message.contains("int4") && message.contains("peak"),
        "{message}"
    );
}

#[test]
fn transfers_make_a_link() {
    // Up: 4 us + bytes / 20 GB/s. Down: bytes / 25 GB/s instead. Pageable memory has half of these
    // rates, and both ways at once each has 80 % of the slower.
    let mut text = "direction,memory,bytes,latency_us\n".to_owned();
    for bytes in [4096.0, 1e6, 1e9] {
        for (way, rate) in [("h2d", 20e9), ("d2h", 25e9), ("both", 16e9)] {
            for (memory, share) in [("pinned", 1.0), ("pageable", 0.5)] {
                text += &format!("{way},{memory},{bytes},{}\n", 4.0 + bytes / (rate * share) * 1e6);
            }
        }
    }
    let points = read(&[&text]).unwrap();
    let (_, points) = points.devices().next().unwrap();
    let link = LinkPart::fitted("x", &points.transfers(), &source()).unwrap().unwrap();
    let near = |value: f64, wanted: f64| assert!((value / wanted - 1.0).abs() < 0.01, "{value} {wanted}");
    near(link.latency.value.get(), 4e-6);
    near(link.to_device.value.get(), 20e9);
    near(link.to_host.value.get(), 25e9);
    near(link.pageable.as_ref().unwrap().to_host.value.get(), 12.5e9);
    near(link.duplex.as_ref().unwrap().value.get(), 0.8);
    assert_eq!(Profile::from_yaml(&yaml::write(&link), "written"), Ok(Profile::Link(Box::new(link))));
    let one_way = read(&["direction,memory,bytes,latency_us\nh2d,pinned,5,5\n"]).unwrap();
    let (_, one_way) = one_way.devices().next().unwrap();
    let message = LinkPart::fitted("x", &one_way.transfers(), &source()).unwrap_err().to_string();
    assert!(message.contains("d2h"), "{message}");
}

fn shapes() -> impl Strategy<Value = Vec<(u64, u64, f64)>> {
    prop::collection::btree_map((1..4_u64, 1..9_u64), 1.0..9.0_f64, 1..30)
        .prop_map(|map| map.into_iter().map(|((m, n), time)| (m, n, time)).collect())
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn every_point_is_left_out_once_and_none_is_lost(shapes in shapes(), of in 2..6_usize) {
        let rows: String = shapes.iter().map(|(m, n, time)| format!("g,bf16,{m},{n},3,{time}\n")).collect();
        let points = read(&[&(HEADER.to_owned() + &rows)]).unwrap();
        let (_, points) = points.devices().next().unwrap();
        let mut tested = Vec::new();
        for index in 0..of {
            let (test, rest) = points.fold(index, of);
            prop_assert_eq!(test.len() + rest.len(), points.len());
            tested.extend(test.operations());
        }
        tested.sort_by_key(|(operation, _)| *operation);
        let expected = if points.len() < of { Vec::new() } else { points.operations().collect() };
        prop_assert_eq!(tested, expected);
    }
}

#[test]
fn attention_without_a_format_is_over_a_bf16_cache() {
    let text =
        "phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim,latency_us\ndecode,1,1,9,8,2,64,5\n";
    let points = read(&[text]).unwrap();
    let (name, points) = points.devices().next().unwrap();
    let AttentionShape { heads, past_tokens, .. } = points.attention()[&DType::Bf16][0].shape;
    assert_eq!((name, heads, past_tokens), ("", 8, 9));
}
