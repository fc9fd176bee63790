//! The presets.

use scenarios::{Architecture, Model};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn parameter_counts_are_the_published_ones() {
    for (name, published) in [
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        ("llama-3.2-1b", 1_235_814_400),
        ("tinyllama-1.1b", 1_100_048_384),
        ("mistral-7b", 7_248_023_552),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-72b", 72_706_203_648),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-32b", 32_762_123_264),
        ("opt-125m", 125_239_296),
        ("opt-1.3b", 1_315_758_080),
        ("opt-6.7b", 6_658_473_984),
        ("gemma-2b", 2_506_172_416),
        ("gemma-7b", 8_537_680_896),
        ("gemma-2-2b", 2_614_341_888),
        ("gemma-2-9b", 9_241_705_984),
        ("gemma-2-27b", 27_227_128_320),
        ("gemma-3-1b", 999_885_952),
        // Without the vision encoder's 416,866,032 parameters, and the matrix and norm after it.
        ("gemma-3-4b", 4_300_079_472 - 416_866_032 - 1152 * 2561),
        ("gemma-3-12b", 12_187_325_040 - 416_866_032 - 1152 * 3841),
        ("gemma-3-27b", 27_432_406_640 - 416_866_032 - 1152 * 5377),
        ("phi-2", 2_779_683_840),
        ("phi-3-mini-4k", 3_821_079_552),
        ("phi-4", 14_659_507_200),
        ("gpt-neox-20b", 20_554_567_680),
        ("pythia-1.4b", 1_414_647_808),
        ("pythia-6.9b", 6_857_302_016),
        ("gpt-j-6b", 6_050_882_784),
        ("falcon-7b", 6_921_720_704),
        ("falcon-40b", 41_303_293_952),
    ] {
        assert_eq!(Model::preset(name).unwrap().parameters().get(), published, "{name}");
    }
}

#[test]
fn the_own_models_have_the_sizes_in_their_names() {
    for (name, low, high) in
        [("fulcrum-250m", 245e6, 255e6), ("fulcrum-1b", 0.95e9, 1.1e9), ("fulcrum-tiny", 1e4, 1e6)]
    {
        let model = Model::preset(name).unwrap();
        assert!((low..high).contains(&model.parameters().as_f64()), "{name}: {}", model.parameters());
        assert!(model.kv_heads < model.heads, "{name} has grouped queries");
        assert!([model.hidden, model.intermediate, model.vocab].iter().all(|size| size % 32 == 0), "{name}");
    }
}

#[test]
fn every_file_of_the_folder_is_a_preset_under_its_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let names: Vec<_> = Model::preset_names().collect();
    assert!(names.is_sorted());
    assert_eq!(files, names.iter().map(|name| (*name).to_owned()).collect());
    for name in names {
        assert_eq!(Model::preset(name).unwrap().name, name);
    }
}

#[test]
fn a_preset_survives_its_own_config() {
    for name in Model::preset_names() {
        let model = Model::preset(name).unwrap();
        let again = Model::from_config_json(name, "config.json", &model.to_config_json()).unwrap();
        assert_eq!(again, model);
    }
}

#[test]
fn fingerprints_tell_presets_apart_and_pass_over_name_and_format() {
    let fingerprints: BTreeSet<_> =
        Model::preset_names().map(|name| Model::preset(name).unwrap().fingerprint()).collect();
    assert_eq!(fingerprints.len(), Model::preset_names().count());
    assert!(
        fingerprints
            .iter()
            .all(|print| print.len() == 16 && print.bytes().all(|byte| byte.is_ascii_hexdigit()))
    );
    let model = Model::preset("fulcrum-tiny").unwrap();
    let renamed = Model { name: "other".to_owned(), dtype: hwprofiles::DType::F32, ..model.clone() };
    assert_eq!(renamed.fingerprint(), model.fingerprint());
    assert_ne!(Model { norm_eps: 1e-6, ..model.clone() }.fingerprint(), model.fingerprint());
    assert_ne!(
        Model { architecture: Architecture::Qwen2, ..model.clone() }.fingerprint(),
        model.fingerprint()
    );
}
