//! The choice of number formats, and the allowed loss of quality.

use crate::AnyMachine;
use hwprofiles::DType;
use proptest::prelude::*;
use scenarios::{
    Document, FormatChoice, Formats, Model, QualityLoss, Scenario, ScenarioError, WeightClass, WeightFormats,
};

const F32: DType = DType::F32;

fn scenario(dtype: &str, quality: &str) -> Result<Scenario, ScenarioError> {
    let load = "workload: {batch: 1, prompt_tokens: 8, output_tokens: 8}";
    let text = format!("machine: this\nmodel: fulcrum-tiny\n{load}\ndtype: {dtype}\n{quality}\n");
    Document::from_yaml("s.yaml", &text)?.scenario()
}

fn choice(dtype: &str, quality: &str) -> FormatChoice {
    scenario(dtype, quality).unwrap().resolve(&AnyMachine).unwrap().formats
}

fn words(choice: &[Formats]) -> Vec<(&'static str, &'static str)> {
    let weights = |formats: &Formats| formats.weights.one().expect("one for all matrices").name();
    choice.iter().map(|formats| (weights(formats), formats.kv.name())).collect()
}

#[test]
fn lists_mean_every_combination_most_bits_first() {
    let choice = choice("{weights: [int4, bf16, int8], kv: [int8, bf16]}", "");
    let expected = [
        ("bf16", "bf16"),
        ("bf16", "int8"),
        ("int8", "bf16"),
        ("int4", "bf16"),
        ("int8", "int8"),
        ("int4", "int8"),
    ];
    assert_eq!(words(&choice.allowed), expected);
    assert!(
        choice.allowed.iter().all(|formats| formats.activations == F32),
        "what is not named has its default"
    );
    assert!(choice.lossy.is_empty(), "without a limit the list is the limit");
}

#[test]
fn one_name_is_no_choice() {
    assert_eq!(choice("int4", ""), choice("{weights: int4}", ""));
    assert_eq!(choice("[bf16, int4]", ""), choice("{weights: [bf16, int4]}", ""));
    assert_eq!(choice("{weights: int4}", ""), choice("{weights: [int4]}", ""));
    assert_eq!(choice("{weights: int4}", "").allowed.len(), 1);
}

#[test]
fn a_limit_leaves_out_formats_that_lose_more_or_have_no_figure() {
    let choice = choice(
        "{weights: [bf16, int8, int4, mxfp4], kv: [bf16, int8, int4, int2]}",
        "quality: {max_loss: 1 %}",
    );
    let expected = [("bf16", "bf16"), ("bf16", "int8"), ("int8", "bf16"), ("int8", "int8")];
    assert_eq!(words(&choice.allowed), expected);
    let why = |weights: DType, kv: DType| {
        let matches = |(formats, _): &&(Formats, String)| formats.weights == weights && formats.kv == kv;
        choice.lossy.iter().find(matches).unwrap().1.as_str()
    };
    assert_eq!(why(DType::Int4, DType::Bf16), "loses 3.67 %: quality.max_loss is 1.00 %");
    assert_eq!(why(DType::Mxfp4, DType::Bf16), "the loss of mxfp4 in weights is not published");
    assert_eq!(why(DType::Bf16, DType::Int4), "the loss of int4 in the KV cache is not published");
    assert_eq!(why(DType::Bf16, DType::Int2), "the loss of int2 in the KV cache is not published");
}

#[test]
fn without_allowed_loss_only_lossless_formats_remain() {
    let choice = choice("{weights: [f32, f16, bf16, int8], kv: [bf16, int8]}", "quality: {max_loss: 0 %}");
    assert_eq!(words(&choice.allowed), [("f32", "bf16"), ("f16", "bf16"), ("bf16", "bf16")]);
}

#[test]
fn errors_name_line_key_and_value() {
    let cases = [
        ("{weights: []}", ""),
        ("{weights: [bf16, int3]}", ""),
        ("{weights: [bf16, int8, bf16]}", ""),
        ("{kv: [bf16, 8]}", ""),
        ("{kv: 8}", ""),
        ("{weights: int2}", ""),
        ("{activations: [f32, int8]}", ""),
        ("{weights: {attentions: int8}}", ""),
        ("{weights: {attention: int3}}", ""),
        ("{weights: {ffn: []}}", ""),
        ("{weights: {ffn: {up: int4}}}", ""),
        ("{weights: {experts: int4}}", ""),
        ("{weights: q4_k_xl}", ""),
        ("{weights: UD-Q4_K_XL}", ""),
        ("{weights: q4_k_n}", ""),
        ("{weights: {ffn: q4_k_m}}", ""),
        ("{weights: {ffn: {q4_k: 0}}}", ""),
        ("{weights: [q4_k_m, Q4-K-M]}", ""),
        ("{kv: q8_0}", ""),
        (
            "{weights: {attention: [bf16, int8, int4], ffn: [bf16, int8, int4], ends: [bf16, int8, int4]}, kv: [f32, bf16, int8, fp8]}",
            "",
        ),
        ("{weights: bf16}", "quality: {max_loss: -1 %}"),
        ("{weights: bf16}", "quality: {max_loss: 101 %}"),
        ("{weights: bf16}", "quality: {max_loss: 1}"),
        ("{weights: bf16}", "quality: {max_loss: .nan %}"),
        ("{weights: bf16}", "quality: {max_los: 1 %}"),
        ("{weights: bf16}", "quality: {}"),
        ("{weights: bf16}", "quality: 1 %"),
        ("{weights: [int4, mxfp4]}", "quality: {max_loss: 0.1 %}"),
    ];
    let message = |(dtype, quality): &(&str, &str)| {
        let error =
            scenario(dtype, quality).and_then(|scenario| scenario.resolve(&AnyMachine)).expect_err(dtype);
        let asked = format!("{dtype} {quality}");
        format!("{}\n  {error}\n", asked.trim_end())
    };
    insta::assert_snapshot!(cases.iter().map(message).collect::<String>());
}

/// The weight formats that a scenario with gpt-oss allows, as a scenario writes them.
fn weights_of_gpt_oss(dtype: &str, quality: &str) -> Vec<String> {
    let load = "workload: {batch: 1, prompt_tokens: 8, output_tokens: 8}";
    let text = format!("machine: this\nmodel: gpt-oss-20b\n{load}\ndtype: {dtype}\n{quality}\n");
    let scenario =
        Document::from_yaml("s.yaml", &text).unwrap().scenario().unwrap().resolve(&AnyMachine).unwrap();
    scenario.formats.allowed.iter().map(|formats| formats.weights.to_string()).collect()
}

#[test]
fn a_class_has_its_own_list_and_the_others_agree() {
    let mixed = "{weights: {default: [bf16, int8], experts: [int8, int4]}}";
    let expected = [
        "{default: bf16, experts: int8}",
        "{default: bf16, experts: int4}",
        "int8",
        "{default: int8, experts: int4}",
    ];
    assert_eq!(weights_of_gpt_oss(mixed, ""), expected);
    // Classes that are not named keep the model's own format.
    assert_eq!(weights_of_gpt_oss("{weights: {experts: int4}}", ""), ["{default: bf16, experts: int4}"]);
    assert_eq!(weights_of_gpt_oss("{weights: {default: int4}}", ""), ["int4"]);
}

#[test]
fn a_dense_model_has_no_choice_of_expert_formats() {
    let one = choice("{weights: {attention: bf16, ffn: int4, ends: bf16}}", "");
    let [formats] = &one.allowed[..] else { panic!("{one:?}") };
    assert_eq!(formats.weights.to_string(), "{default: int4, attention: bf16, ends: bf16}");
    assert_eq!(one, choice("{weights: {default: [int8, f32], attention: bf16, ffn: int4, ends: bf16}}", ""));
}

#[test]
fn a_class_loses_its_share_of_the_numbers() {
    // 91 % of gpt-oss's matrix elements are in experts, so int4 experts lose 3.34 % of the 3.67 %.
    let limited = |limit: &str| {
        weights_of_gpt_oss(
            "{weights: {default: [bf16, int4], experts: int4}}",
            &format!("quality: {{max_loss: {limit}}}"),
        )
    };
    assert_eq!(limited("3.4 %"), ["{default: bf16, experts: int4}"]);
    assert_eq!(limited("3.7 %"), ["{default: bf16, experts: int4}", "int4"]);
    let model = Model::preset("gpt-oss-20b").unwrap();
    let shares: f64 = WeightClass::ALL.into_iter().map(|class| model.share_of(class)).sum();
    assert!((shares - 1.0).abs() < 1e-12);
}

#[test]
fn documents_have_one_word_or_every_class() {
    let mixed = WeightFormats::all(DType::Bf16).with(WeightClass::Experts, DType::Int4);
    let full = r#"{"attention":"bf16","ffn":"bf16","experts":"int4","ends":"bf16"}"#;
    assert_eq!(serde_json::to_string(&mixed).unwrap(), full);
    assert_eq!(serde_json::to_string(&WeightFormats::all(DType::Int4)).unwrap(), r#""int4""#);
    for text in [full, r#"{"default":"bf16","experts":"int4"}"#] {
        assert_eq!(serde_json::from_str::<WeightFormats>(text).unwrap(), mixed);
    }
    for wrong in [r#""int3""#, r#"{"experts":"int4"}"#, r#"{"default":"bf16","expert":"int4"}"#, "4"] {
        assert!(serde_json::from_str::<WeightFormats>(wrong).is_err(), "{wrong}");
    }
}

proptest! {
    #![proptest_config(crate::cases(256))]

    #[test]
    fn losses_of_weights_and_kv_add_up(weights in prop::sample::select(DType::ALL.to_vec()), kv in prop::sample::select(DType::ALL.to_vec())) {
        let model = Model::preset("fulcrum-tiny").unwrap();
        let loss = |weights: DType, kv| QualityLoss::from_formats(&Formats { weights: weights.into(), kv, activations: F32 }, &model);
        let none = loss(F32, F32).unwrap();
        let (both, one, other) = (loss(weights, kv), loss(weights, F32), loss(F32, kv));
        prop_assert_eq!(both.is_ok(), one.is_ok() && other.is_ok());
        if let (Ok(both), Ok(one), Ok(other)) = (both, one, other) {
            prop_assert!(both >= one && both >= other && one >= none && other >= none);
        }
    }
}
