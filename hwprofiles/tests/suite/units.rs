//! Laws of quantities in text, and of the bytes of number formats.

use hwprofiles::{
    Bytes, BytesPerSec, DType, Dollars, Elements, Flop, FlopPerByte, FlopPerSec, Joules, RequestsPerSec,
    Seconds, UnitError, Watts,
};
use proptest::prelude::*;

/// Zero, and what files may hold of every quantity in base units.
fn any_measured() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        1.0..1e6f64,
        1.0..1e24f64,
        (1u32..10_000, 0i32..18).prop_map(|(digits, e)| f64::from(digits) * 10f64.powi(e)),
    ]
}

proptest! {
    #![proptest_config(crate::cases(256))]

    #[test]
    fn a_measured_quantity_reads_back_bit_for_bit(value in any_measured()) {
        macro_rules! check {
            ($($kind:ident)*) => {$(
                let text = $kind::new(value).to_file_text();
                prop_assert_eq!(text.parse::<$kind>().map($kind::get), Ok(value), "{}", text);
            )*};
        }
        check!(Seconds BytesPerSec FlopPerSec FlopPerByte Watts Joules Dollars RequestsPerSec);
    }

    #[test]
    fn a_counted_quantity_reads_back_exactly(bytes in any::<u64>(), flop in any::<u128>(), zeros in 0u32..12) {
        let round = bytes / 10u64.pow(zeros) * 10u64.pow(zeros);
        for bytes in [bytes, round].map(Bytes::new) {
            prop_assert_eq!(bytes.to_file_text().parse(), Ok(bytes));
        }
        let flop = Flop::new(flop);
        prop_assert_eq!(flop.to_file_text().parse(), Ok(flop));
    }

    #[test]
    fn what_people_read_is_within_a_thousandth(value in 1e-9..1e15f64) {
        let shown: f64 = Seconds::new(value).to_string().parse::<Seconds>().unwrap().get();
        prop_assert!((shown / value - 1.0).abs() < 1e-3, "{value} as {}", Seconds::new(value));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*", unit in "[ 0-9eE.+_-]{0,12}[µa-zA-Z/]{0,5}") {
        for text in [text, unit] {
            let _ = (text.parse::<Bytes>(), text.parse::<Seconds>(), text.parse::<Flop>(), text.parse::<DType>());
        }
    }

    #[test]
    fn matrix_bytes_are_rows_times_the_bytes_of_a_row(rows in 0u64..1000, columns in 0u64..100_000) {
        for dtype in DType::ALL {
            let row = dtype.matrix_bytes(1, columns);
            prop_assert_eq!(dtype.matrix_bytes(rows, columns), row * rows);
            prop_assert_eq!(dtype.cache_bytes(rows, columns), dtype.bytes(Elements::new(columns)) * rows);
            if ![DType::Fp8, DType::Fp8Block, DType::Nvfp4].contains(&dtype) {
                prop_assert_eq!(dtype.bytes(Elements::new(columns)), row);
            }
        }
    }
}

#[test]
fn decimal_and_binary_units_differ_and_spelling_is_free() {
    for (text, bytes) in [
        ("1 GB", 1_000_000_000),
        ("1 GiB", 1 << 30),
        ("1.5kB", 1500),
        ("1e3 B", 1000),
        (" 80 GB ", 80_000_000_000),
        ("1_000 B", 1000),
        ("1.1 GB", 1_100_000_000),
        ("0.5 KiB", 512),
    ] {
        assert_eq!(text.parse(), Ok(Bytes::new(bytes)), "{text}");
    }
    assert_eq!("5 µs".parse(), Ok(Seconds::new(5e-6)));
    assert_eq!("2.5 us".parse(), Ok(Seconds::new(2.5e-6)));
    assert_eq!("2 h".parse(), Ok(Seconds::new(7200.0)));
    assert_eq!("1.5 kWh".parse(), Ok(Joules::new(5.4e6)));
    assert_eq!("120 req/min".parse(), Ok(RequestsPerSec::new(2.0)));
    for text in ["50 req/s", "50 requests/s", "50 rps", "50qps"] {
        assert_eq!(text.parse::<RequestsPerSec>().map(RequestsPerSec::to_file_text), Ok("50 req/s".into()));
    }
}

#[test]
fn quantities_are_written_in_the_unit_a_person_would_choose() {
    let texts = [
        Bytes::new(1 << 30).to_string(),
        Bytes::new(1 << 30).to_file_text(),
        Bytes::new(80_000_000_000).to_file_text(),
        BytesPerSec::new(3.35e12).to_string(),
        FlopPerSec::new(989e12).to_file_text(),
        Seconds::new(0.000_123_456_789).to_string(),
        Seconds::new(0.000_123_456_789).to_file_text(),
        Seconds::ZERO.to_string(),
        Seconds::new(7200.0).to_file_text(),
        Seconds::new(2e-12).to_file_text(),
        Joules::new(5.4e6).to_string(),
        RequestsPerSec::new(0.5).to_file_text(),
    ];
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn a_bad_quantity_says_what_is_wrong_and_what_would_be_right() {
    fn line(result: Result<String, UnitError>) -> String {
        result.expect_err("must be refused").to_string()
    }
    let bytes = |text: &str| line(text.parse::<Bytes>().map(|b| b.to_string()));
    let rate = |text: &str| line(text.parse::<BytesPerSec>().map(|b| b.to_string()));
    let lines = [
        bytes("80"),
        bytes("80 Gb"),
        bytes("-80 GB"),
        bytes(""),
        bytes("GB"),
        bytes("1.5 B"),
        bytes("99999999999 TB"),
        bytes("1e400 GB"),
        rate("4.8"),
        rate("4.8 TB"),
        rate("nan GB/s"),
        rate("inf GB/s"),
        rate("1e308 TB/s"),
        rate("4,8 TB/s"),
        line("three ms".parse::<Seconds>().map(|s| s.to_string())),
        "int3".parse::<DType>().expect_err("must be refused"),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn integer_formats_carry_one_scale_per_started_group() {
    assert_eq!(DType::Int8.matrix_bytes(1, 32), Bytes::new(34));
    assert_eq!(DType::Int8.matrix_bytes(1, 33), Bytes::new(68));
    assert_eq!(DType::Int4.matrix_bytes(2, 64), Bytes::new(2 * 2 * 18));
    assert_eq!(DType::Int2.matrix_bytes(1, 128), Bytes::new(48));
    assert_eq!(DType::Int2.matrix_bytes(3, 33), Bytes::new(3 * 24));
    assert_eq!(DType::Bf16.matrix_bytes(3, 5), Bytes::new(30));
    assert_eq!(DType::Fp8.matrix_bytes(3, 0), Bytes::ZERO);
}

/// Bits of a value of the published formats: (values, bytes) of a block, as the files have them.
const PUBLISHED_BLOCKS: [(DType, u64, u64); 26] = [
    (DType::Q8_0, 32, 34),
    (DType::Q6K, 256, 210),
    (DType::Q5K, 256, 176),
    (DType::Q5_1, 32, 24),
    (DType::Q5_0, 32, 22),
    (DType::Q4K, 256, 144),
    (DType::Q4_1, 32, 20),
    (DType::Q4_0, 32, 18),
    (DType::Iq4Nl, 32, 18),
    (DType::Iq4Xs, 256, 136),
    (DType::Iq4Ks, 256, 136),
    (DType::Iq4Kt, 256, 128),
    (DType::Iq4Kss, 256, 128),
    (DType::Mxfp4, 32, 17),
    (DType::Q3K, 256, 110),
    (DType::Iq3S, 256, 110),
    (DType::Iq3K, 256, 110),
    (DType::Iq3Xxs, 256, 98),
    (DType::Q2K, 256, 84),
    (DType::Iq2K, 256, 76),
    (DType::Iq2S, 256, 82),
    (DType::Iq2Xs, 256, 74),
    (DType::Iq2Xxs, 256, 66),
    (DType::Iq1M, 256, 56),
    (DType::Iq1S, 256, 50),
    (DType::Iq6K, 256, 212),
];

#[test]
fn formats_have_the_bytes_of_their_files() {
    for (dtype, values, bytes) in PUBLISHED_BLOCKS {
        assert_eq!(dtype.matrix_bytes(3, 8 * values), Bytes::new(3 * 8 * bytes), "{dtype}");
        assert_eq!(dtype.matrix_bytes(1, 1), Bytes::new(bytes), "{dtype}: a row is padded to whole blocks");
    }
    let bits = |dtype: DType| dtype.bits();
    for (dtype, expected) in [
        (DType::Q8_0, 8.5),
        (DType::Q6K, 6.5625),
        (DType::Q5K, 5.5),
        (DType::Q4K, 4.5),
        (DType::Mxfp4, 4.25),
        (DType::Nvfp4, 4.5),
        (DType::Iq4Xs, 4.25),
        (DType::Q3K, 3.4375),
        (DType::Iq3Xxs, 3.0625),
        (DType::Q2K, 2.625),
        (DType::Iq2Xxs, 2.0625),
        (DType::Iq1S, 1.5625),
        (DType::Fp8, 8.0),
        (DType::Fp8Block, 8.0 + 8.0 * 4.0 / 2048.0),
        // 4 bits, and 16 + 4 bits for 128 values.
        (DType::Int4G128, 4.0 + 20.0 / 128.0),
    ] {
        assert_eq!(bits(dtype), expected, "{dtype}");
    }
    // One scale of 4 bytes for 16 × 128 values, or for a row.
    assert_eq!(DType::Fp8Block.matrix_bytes(8192, 8192), Bytes::new(8192 * 8192 + 4 * 512 * 64));
    assert_eq!(DType::Fp8.matrix_bytes(8192, 4096), Bytes::new(8192 * (4096 + 4)));
    assert_eq!(DType::Nvfp4.matrix_bytes(8192, 4096), Bytes::new(8192 * (4096 / 16 * 9 + 4)));
    assert_eq!(DType::Fp8.cache_bytes(8192, 128), Bytes::new(8192 * 128));
}

#[test]
fn formats_are_read_as_other_programs_spell_them() {
    for dtype in DType::ALL {
        for text in
            [dtype.name().to_uppercase(), dtype.name().replace('_', "-"), dtype.name().replace('_', "")]
        {
            assert_eq!(text.parse(), Ok(dtype), "{text}");
        }
    }
    for (text, dtype) in [
        ("fp8_e4m3", DType::Fp8),
        ("float8_e4m3fn", DType::Fp8),
        ("F8_E4M3", DType::Fp8),
        ("gptq-int4", DType::Int4G128),
        ("AWQ", DType::Int4G128),
        ("MXFP4", DType::Mxfp4),
        ("NVFP4", DType::Nvfp4),
        ("IQ4_XS", DType::Iq4Xs),
        ("bfloat16", DType::Bf16),
        ("half", DType::F16),
    ] {
        assert_eq!(text.parse(), Ok(dtype), "{text}");
    }
    let message = |text: &str| text.parse::<DType>().unwrap_err();
    assert_eq!(message("int3"), "'int3' is not a number format; the nearest are int8, int4, int2");
    assert_eq!(message("q4_k_x"), "'q4_k_x' is not a number format; the nearest are q4_k, q6_k, q5_k");
    assert!(message("mxf4").contains("the nearest are mxfp4"), "{}", message("mxf4"));
    assert!(message("").contains("the nearest are"));
    assert!(message(&"ü".repeat(100_000)).contains("the nearest are"));
}
