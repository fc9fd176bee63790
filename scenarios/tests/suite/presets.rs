//! The presets.

use scenarios::{Architecture, Model};
use std::collections::BTreeSet;
use std::path::Path;

/// Presets with the numbers of parameters that their makers publish.
const PUBLISHED: &[(&str, u64)] = &[
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
    ("llama-3.2-3b", 3_212_749_824),
    ("llama-3.3-70b", 70_553_706_496),
    ("qwen2.5-1.5b", 1_543_714_304),
    ("qwen2.5-3b", 3_085_938_688),
    ("qwen2.5-14b", 14_770_033_664),
    ("qwen2.5-32b", 32_763_876_352),
    ("qwen3-1.7b", 1_720_574_976),
    ("qwen3-4b", 4_022_468_096),
    ("qwen3-14b", 14_768_307_200),
    ("qwen3-coder-480b-a35b", 480_154_875_392),
    ("qwen3-next-80b-a3b", 79_674_391_296),
    ("mistral-small-24b", 23_572_403_200),
    ("mistral-nemo-12b", 12_247_782_400),
    ("ministral-8b", 8_019_808_256),
    ("mistral-large-123b", 122_610_069_504),
    ("phi-3.5-moe", 41_873_153_344),
    ("phi-4-mini", 3_836_021_760),
    ("olmo-2-7b", 7_298_617_344),
    ("olmo-2-13b", 13_716_198_400),
    ("smollm3-3b", 3_075_098_624),
    ("smollm2-135m", 134_515_008),
    ("smollm2-360m", 361_821_120),
    ("smollm2-1.7b", 1_711_376_384),
    ("lfm2-350m", 354_483_968),
    ("lfm2-700m", 742_489_344),
    ("gemma-3-270m", 268_098_176),
    ("seed-oss-36b", 36_151_104_512),
    ("lfm2-1.2b", 1_170_340_608),
    ("qwen3.5-0.8b", 752_393_024),
    ("qwen3.5-2b", 1_881_825_088),
    ("qwen3.5-4b", 4_205_751_296),
    ("qwen3.5-9b", 8_953_803_264),
    ("ministral-3-3b", 3_429_006_336),
    ("ministral-3-8b", 8_489_553_920),
    ("ministral-3-14b", 13_506_073_600),
    ("trinity-mini", 26_123_974_400),
    ("nemotron-3-nano-4b", 3_973_556_832),
    ("granite-4-1b", 1_631_750_144),
    ("laguna-xs-2.1", 33_442_617_088),
    ("laguna-s-2.1", 117_561_977_600),
    // Its experts read what attention reads; here a norm is in front of them.
    ("north-mini-code-1.0", 30_484_303_872 + 48 * 2048),
    // With a factor behind each layer, which is no parameter to transformers.
    ("gemma-4-12b", 11_907_350_272 + 48),
    ("olmo-2-1b", 1_484_916_736),
    ("olmo-2-32b", 32_234_279_936),
    ("olmo-3-7b", 7_298_011_136),
    ("olmo-3-32b", 32_233_522_176),
    // Attention and Mamba-2 are two layers here, each with a norm, and Mamba-2's output has one.
    ("falcon-h1-0.5b", 521_411_104 + 36 * (1024 + 1536)),
    ("falcon-h1-tiny-90m", 91_131_072 + 24 * (512 + 768)),
    ("hy3", 295_033_543_488),
    ("lfm2.5-230m", 229_693_184),
    ("h2o-danube3-500m", 513_590_784),
    ("nemotron-3-ultra-550b-a55b", 549_308_993_536),
    // The router's bias is no parameter to transformers.
    ("step-3.5-flash", 196_956_118_272 + 42 * 288),
    // Norms of q and k have weights here.
    ("muse-glimmer-30b", 27_854_780_928 + 52 * 2 * 128),
    // The same, and norms behind attention; there residuals have gates, and experts further norms.
    ("muse-spark-816b-a42b", 819_990_536_192 + 62 * (2 * 64 + 256 + 8192) - 62 * (2 * 8192 + 2 * 4096)),
];

/// Numbers that are counted here, of presets whose makers state them in billions: a reader that
/// changes one shows.
const COUNTED: &[(&str, u64)] = &[
    ("llama-30b", 32_528_943_616),
    ("llama-65b", 65_285_660_672),
    ("codellama-7b", 6_738_546_688),
    ("codellama-34b", 33_743_970_304),
    ("yi-6b", 6_061_035_520),
    ("yi-9b", 8_829_407_232),
    ("yi-34b", 34_388_917_248),
    ("solar-10.7b", 10_731_524_096),
    ("deepseek-llm-7b", 6_910_365_696),
    ("deepseek-llm-67b", 67_425_001_472),
    ("deepseek-coder-33b", 33_342_991_360),
    ("deepseek-r1-distill-qwen-1.5b", 1_777_088_000),
    ("codestral-22b", 22_247_282_688),
    ("falcon3-1b", 1_669_408_768),
    ("falcon3-7b", 7_455_550_464),
    ("falcon3-10b", 10_305_653_760),
    ("falcon-180b", 179_522_565_120),
    ("phi-1.5", 1_418_270_720),
    ("phi-3.5-mini", 3_821_079_552),
    ("phi-3-medium-4k", 13_960_238_080),
    ("qwen1.5-0.5b", 463_987_712),
    ("qwen1.5-7b", 7_721_324_544),
    ("qwen1.5-14b", 14_167_290_880),
    ("qwen1.5-32b", 32_512_218_112),
    ("qwen1.5-72b", 72_287_920_128),
    ("qwen1.5-110b", 111_209_914_368),
    ("qwen1.5-moe-a2.7b", 14_315_784_192),
    ("starcoder2-3b", 3_030_371_328),
    ("starcoder2-7b", 7_173_923_840),
    ("starcoder2-15b", 15_957_889_024),
    ("stablelm-2-1.6b", 1_644_515_328),
    ("exaone-3.5-7.8b", 7_818_448_896),
    ("olmoe-1b-7b", 6_919_161_856),
    ("dots.llm1", 142_774_381_696),
    ("ernie-4.5-0.3b", 360_748_032),
    ("moonlight-16b-a3b", 15_960_110_208),
    ("nemotron-nano-9b-v2", 8_888_227_328),
    ("nemotron-nano-12b-v2", 12_310_001_152),
    ("lfm2-2.6b", 2_569_272_320),
    ("opt-2.7b", 2_651_596_800),
    ("pythia-410m", 405_334_016),
    ("pythia-1b", 1_011_781_632),
    ("pythia-2.8b", 2_775_208_960),
    ("pythia-12b", 11_846_072_320),
];

#[test]
fn parameter_counts_are_the_published_ones() {
    for &(name, parameters) in PUBLISHED.iter().chain(COUNTED) {
        assert_eq!(Model::preset(name).unwrap().parameters().get(), parameters, "{name}");
    }
}

/// Presets whose makers publish a rounded number of parameters, in billions.
const ROUNDED: &[(&str, f64)] = &[
    ("afm-4.5b", 4.62),
    ("apertus-8b", 8.05),
    ("apertus-70b", 70.6),
    ("aya-expanse-8b", 8.03),
    ("command-a-111b", 111.1),
    ("command-r-32b", 32.3),
    ("command-r-35b", 35.0),
    ("command-r-plus-104b", 103.8),
    ("command-r7b", 8.03),
    ("ernie-4.5-300b-a47b", 299.5),
    ("exaone-3.5-2.4b", 2.41),
    ("exaone-3.5-32b", 32.0),
    ("exaone-4.0-1.2b", 1.28),
    ("exaone-4.0-32b", 32.0),
    ("falcon-h1-7b", 7.59),
    ("falcon-h1-34b", 33.6),
    ("granite-3.1-1b-a400m", 1.33),
    ("granite-3.1-3b-a800m", 3.30),
    ("granite-3.3-2b", 2.53),
    ("granite-3.3-8b", 8.17),
    ("granite-4-h-micro", 3.19),
    ("granite-4-micro", 3.40),
    ("hunyuan-a13b", 80.4),
    ("internlm3-8b", 8.80),
    ("jamba-large", 398.6),
    ("jamba-mini", 51.6),
    ("ling-1t", 999.7),
    ("ling-flash-2.0", 102.9),
    ("ling-mini-2.0", 16.3),
    ("longcat-flash", 560.7),
    ("mistral-large-3-675b", 673.4),
    ("nemotron-4-340b", 341.0),
    ("nemotron-mini-4b", 4.19),
    ("qwen2-57b-a14b", 57.4),
    ("stablelm-2-12b", 12.1),
    ("stablelm-zephyr-3b", 2.80),
];

#[test]
fn parameter_counts_are_near_the_rounded_ones() {
    for &(name, billions) in ROUNDED {
        let counted = Model::preset(name).unwrap().parameters().as_f64() / 1e9;
        assert!((counted / billions - 1.0).abs() < 0.005, "{name}: {counted:.3} of {billions}");
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

/// The families that are run.
const RUNS: [Architecture; 17] = [
    Architecture::Llama,
    Architecture::Qwen2,
    Architecture::Qwen3,
    Architecture::Opt,
    Architecture::Mixtral,
    Architecture::Qwen3Moe,
    Architecture::GptOss,
    Architecture::DeepSeekV2,
    Architecture::DeepSeekV3,
    Architecture::Gemma,
    Architecture::Gemma2,
    Architecture::Gemma3,
    Architecture::Phi,
    Architecture::Phi3,
    Architecture::GptNeoX,
    Architecture::GptJ,
    Architecture::Falcon,
];

#[test]
fn a_preset_survives_its_own_config() {
    for name in Model::preset_names() {
        let model = Model::preset(name).unwrap();
        // Families that are only counted are not written.
        let Ok(text) = model.to_config_json() else {
            assert!(!RUNS.contains(&model.architecture), "{name}");
            continue;
        };
        let again = Model::from_config_json(name, "config.json", &text).unwrap();
        assert_eq!(again, Model { published: None, ..model });
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

#[test]
fn a_preset_is_found_by_the_names_that_people_use() {
    for (written, preset) in [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("QWEN3-8B", "qwen3-8b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"),
        ("llama3.1:8b", "llama-3.1-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("gpt-oss:20b", "gpt-oss-20b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"),
        ("zai-org/GLM-4.5-Air-FP8", "glm-4.5-air"),
        ("moonshotai/Kimi-K2-Instruct", "kimi-k2"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout-17b-16e"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"),
        ("allenai/OLMo-2-1124-7B-Instruct", "olmo-2-7b"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"),
        ("mistralai/Ministral-3-3B-Instruct-2512", "ministral-3-3b"),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", "deepseek-v4-flash"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16", "nemotron-3-nano-4b"),
        ("deepreinforce-ai/Ornith-1.0-35B-GGUF", "ornith-1.0-35b"),
        ("ibm-granite/granite-4.0-1b", "granite-4.0-1b"),
        ("poolside/Laguna-XS-2.1-FP8", "laguna-xs-2.1"),
        ("poolside/Laguna-XS.2", "laguna-xs.2"),
        ("stepfun-ai/Step-3.5-Flash-FP8", "step-3.5-flash"),
        ("CohereLabs/North-Mini-Code-1.0", "north-mini-code-1.0"),
        ("google/gemma-4-12B-it", "gemma-4-12b"),
        ("allenai/OLMo-2-0425-1B-Instruct", "olmo-2-1b"),
        ("allenai/Olmo-3-32B-Think", "olmo-3-32b"),
        ("tiiuae/Falcon-H1-Tiny-90M-Instruct-GGUF", "falcon-h1-tiny-90m"),
        ("tencent/Hy3-preview", "hy3"),
        ("LiquidAI/LFM2.5-230M", "lfm2.5-230m"),
        ("h2oai/h2o-danube3-500m-chat", "h2o-danube3-500m"),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "nemotron-3-ultra-550b-a55b"),
        ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", "nemotron-3.5-lightning-30b-a3b"),
        ("Qwen/Qwen3.8-27B", "qwen3.8-27b"),
        ("migtissera/Tess-4-35B-A3B", "tess-4-35b-a3b"),
        // Fine-tuned models have the shape of the model whose name theirs begins with.
        ("NousResearch/Llama-3.1-8B-Hermes-Uncensored", "llama-3.1-8b"),
        ("unsloth/Qwen3.6-27B-MTP-GGUF", "qwen3.6-27b"),
        ("bartowski/nvidia_Nemotron-Cascade-2-30B-A3B-GGUF", "nemotron-cascade-2-30b-a3b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1-distill-qwen-32b"),
        ("microsoft/Phi-3.5-mini-instruct", "phi-3.5-mini"),
        ("CohereLabs/c4ai-command-r-plus", "c4ai-command-r-plus"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl-7b"),
        ("ibm-granite/granite-4.0-h-micro", "granite-4.0-h-micro"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron-nano-9b-v2"),
        // Or holds it.
        ("NousResearch/Hermes-3-Llama-3.1-8B", "llama-3.1-8b"),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "qwen3-8b"),
        ("cognitivecomputations/dolphin-2.5-mixtral-8x7b", "mixtral-8x7b"),
        // Names are often written without their end.
        ("qwen3-235b", "qwen3-235b-a22b"),
        ("qwen3:30b", "qwen3-30b-a3b"),
        ("Qwen3-Coder-30B", "qwen3-coder-30b-a3b"),
        ("qwen3-next", "qwen3-next-80b-a3b"),
    ] {
        assert_eq!(Model::preset(written).map(|model| model.name).ok().as_deref(), Some(preset), "{written}");
    }
    for (alias, preset) in Model::preset_aliases() {
        let [one, other] = [alias, preset].map(|name| Model::preset(name).unwrap());
        assert_eq!((one.name.as_str(), one.fingerprint()), (alias, other.fingerprint()));
    }
}

#[test]
fn a_name_of_no_preset_is_told_the_nearest_ones() {
    // A distilled model is another model.
    let error = Model::preset("deepseek-ai/DeepSeek-R1-Distill-Other-7B").unwrap_err().to_string();
    assert!(error.contains("is not a model"), "{error}");
    let error = Model::preset("qwen3-8c").unwrap_err().to_string();
    assert!(error.contains("did you mean qwen3-8b?"), "{error}");
    let several = [
        ("llama-70b", "llama-3.3-70b"),
        ("qwen4", "did you mean qwen"),
        ("gpt-oss", "did you mean gpt-oss-120b, gpt-oss-20b"),
        ("mixtral", "did you mean mixtral-8x22b, mixtral-8x7b?"),
    ];
    for (written, near) in several {
        let error = Model::preset(written).unwrap_err().to_string();
        assert!(error.contains(near) && error.contains("a GGUF file is wanted"), "{error}");
    }
}

#[test]
fn bare_names_tell_presets_apart() {
    let names: Vec<_> =
        Model::preset_names().chain(Model::preset_aliases().map(|(alias, _)| alias)).collect();
    for name in &names {
        assert_eq!(Model::preset(&name.to_uppercase()).unwrap().name, *name);
    }
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
}
