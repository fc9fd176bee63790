//! Operators in bulk: what is read, and the messages for what is refused.

use hwprofiles::{DType, Operation, Operations, Phase};
use proptest::prelude::*;

const PRODUCTS: &str = "dtype,m,n,k\n";
const ATTENTION: &str = "phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim\n";

/// Every operation of a file with its measured time in us, or the error.
fn read(text: impl AsRef<[u8]>) -> Result<Vec<(Operation, Option<f64>)>, String> {
    let mut operations = Operations::new(text.as_ref(), "ops.csv").map_err(|e| e.to_string())?;
    let mut all = Vec::new();
    while let Some(operation) = operations.advance().map_err(|e| e.to_string())? {
        let measured = operations.measured().map_err(|e| e.to_string())?;
        all.push((operation, measured.map(|time| time.get() * 1e6)));
    }
    Ok(all)
}

fn gemm(dtype: DType, m: u64, n: u64, k: u64) -> Operation {
    Operation::Gemm { dtype, m, n, k }
}

#[test]
fn columns_are_found_by_name_in_any_order_beside_others() {
    let text =
        "note,K,latency_us,n, M ,dtype,gpu\n\"a, b\",64,2.5,32,1,bfloat16,h100\n,64.0,,32,2,fp8_e4m3,\n";
    assert_eq!(
        read(text).unwrap(),
        [(gemm(DType::Bf16, 1, 32, 64), Some(2.5)), (gemm(DType::Fp8, 2, 32, 64), None)]
    );
}

#[test]
fn the_words_of_other_tools_for_number_formats_are_understood() {
    let words = "bf16 bfloat16 BFLOAT16 f16 fp16 float16 f32 fp32 float32 fp8 float8 fp8_e4m3 int8 int4";
    let rows: String = words.split(' ').map(|word| format!("{word},1,2,3\n")).collect();
    let dtypes: Vec<_> = read(PRODUCTS.to_owned() + &rows).unwrap().into_iter().map(|(it, _)| it).collect();
    use DType::{Bf16, F16, F32, Fp8, Int4, Int8};
    let expected = [Bf16, Bf16, Bf16, F16, F16, F16, F32, F32, F32, Fp8, Fp8, Fp8, Int8, Int4];
    assert_eq!(dtypes, expected.map(|dtype| gemm(dtype, 1, 2, 3)));
}

#[test]
fn one_file_may_hold_both_kinds_and_the_cache_is_bf16_where_nothing_is_said() {
    let text = "dtype,m,n,k,phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim\n\
                fp8,1,2,3,,,,,,,\n\
                ,,,,Decode,4,1,100,32,8,128\n\
                int8,,,,prefill,1,512,0,8,8,64\n";
    let read = read(text).unwrap();
    assert_eq!(read[0].0, gemm(DType::Fp8, 1, 2, 3));
    let [
        (Operation::Attention { kv: DType::Bf16, shape: a }, _),
        (Operation::Attention { kv: DType::Int8, shape: b }, _),
    ] = read[1..]
    else {
        panic!("{read:?}")
    };
    assert_eq!((a.phase, a.batch, a.past_tokens, a.kv_heads, a.head_dim), (Phase::Decode, 4, 100, 8, 128));
    assert_eq!((b.phase, b.new_tokens, b.past_tokens), (Phase::Prefill, 512, 0));
}

#[test]
fn a_bad_table_gets_one_message_with_its_line_its_column_and_what_would_be_right() {
    let products = |row: &str| PRODUCTS.to_owned() + "bf16,1,2,3\n" + row + "\n";
    let attention = |row: &str| ATTENTION.to_owned() + row + "\n";
    let texts = [
        String::new(),
        "m,n,k\n1,2,3\n".into(),
        "dtype,m,k\nbf16,1,3\n".into(),
        "phase,batch,heads\nprefill,1,8\n".into(),
        "a,b\n1,2\n".into(),
        "dtype;m;n;k\nbf16;1;2;3\n".into(),
        "dtype,m,n,k,M\nbf16,1,2,3,4\n".into(),
        products("bf17,1,2,3"),
        products(",1,2,3"),
        products("bf16,0,2,3"),
        products("bf16,-1,2,3"),
        products("bf16,1.5,2,3"),
        products("bf16,1e3,2,3"),
        products("bf16,,2,3"),
        products("bf16,99999999999999999999999,2,3"),
        products("bf16,1000000001,2,3"),
        products("bf16,1,2"),
        products("bf16,1,2,3,4"),
        products("bf16,\"1,2,3"),
        attention("generate,1,1,1,8,8,64"),
        attention("decode,1,2,1,8,8,64"),
        attention("decode,1,1,1,8,3,64"),
        attention("decode,1,1,-1,8,8,64"),
        attention("prefill,1,0,0,8,8,64"),
        attention("decode,1000000000,1,1000000000,8,8,64"),
        "dtype,m,n,k,phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim\n,,,,,,,,,,\n".into(),
        "dtype,m,n,k,phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim\nbf16,1,2,3,decode,1,1,1,8,8,64\n"
            .into(),
        "dtype,m,n,k,latency_us\nbf16,1,2,3,NaN\n".into(),
        "dtype,m,n,k,latency_us\nbf16,1,2,3,0\n".into(),
        "dtype,m,n,k,latency_us\nbf16,1,2,3,-4\n".into(),
        "dtype,m,n,k,latency_us\nbf16,1,2,3,inf\n".into(),
        "dtype,m,n,k,latency_us\nbf16,1,2,3,fast\n".into(),
    ];
    let messages: Vec<_> = texts.iter().map(|text| read(text).expect_err(text)).collect();
    insta::assert_snapshot!(messages.join("\n"));
    let latin = read(b"dtype,m,n,k\nbf16,1,2,\xE9\n").unwrap_err();
    assert!(latin.starts_with("ops.csv:2: k: "), "{latin}");
}

#[test]
fn a_header_alone_asks_for_nothing_and_bytes_of_other_columns_may_be_anything() {
    assert_eq!(read(PRODUCTS), Ok(vec![]));
    assert_eq!(read(b"dtype,m,n,k,\xE9\nbf16,1,2,3,\xFF\n").unwrap(), [(gemm(DType::Bf16, 1, 2, 3), None)]);
}

proptest! {
    #![proptest_config(crate::cases(256))]

    #[test]
    fn what_is_written_is_read_back(
        rows in prop::collection::vec((0..6_usize, 1..=1_000_000_000_u64, 1..=1_000_000_000_u64, 1..9999_u64), 0..20),
    ) {
        let all: Vec<_> = rows.iter().map(|&(d, m, n, k)| gemm(DType::ALL[d], m, n, k)).collect();
        let lines: String =
            rows.iter().map(|(d, m, n, k)| format!("{n},\"{m}\",{k},{}\r\n", DType::ALL[*d])).collect();
        let read = read("n,m,k,dtype\r\n".to_owned() + &lines).unwrap();
        prop_assert_eq!(read.into_iter().map(|(it, _)| it).collect::<Vec<_>>(), all);
    }

    #[test]
    fn no_cells_make_it_panic(row in "[0-9a-z.,\"-]{0,30}") {
        let _ = read(PRODUCTS.to_owned() + &row);
        let _ = read(ATTENTION.to_owned() + &row);
        let _ = read(row);
    }
}
