//! llama.cpp's names: number types, tensors, and a model's file.

use super::shell::quoted;
use super::site::Site;
use hwprofiles::DType;
use scenarios::{Architecture, LayerKind, Sublayer};

/// The file that the server reads.
#[derive(Debug, Clone)]
pub(super) struct ModelFile {
    /// Its name.
    pub name: String,
    /// Name and text of a script that makes the file, where classes of matrices have their own
    /// formats.
    pub quantise: Option<(String, String)>,
    /// How the file's types differ from the plan's formats.
    pub cannot: Vec<String>,
}

impl ModelFile {
    /// The file for the plan's weights.
    ///
    /// `llama-quantize` takes a type for tensors by name (`--tensor-type`, a regular expression)
    /// and for the token table and the output projection. All other tensors get the file's type,
    /// which must be a quantised one.
    pub fn from_plan(site: &Site<'_>) -> Self {
        let (weights, model) = (site.plan.formats.weights, &site.plan.model.name);
        let lost = |dtype: DType| file_type(dtype).1;
        let named = |word: &str| format!("{model}-{word}.gguf");
        if let Some(dtype) = weights.one() {
            let cannot = lost(dtype).into_iter().collect();
            return Self { name: named(file_type(dtype).0), quantise: None, cannot };
        }
        let quantised = |&dtype: &DType| file_type(dtype).0.starts_with('Q');
        let Some(whole) = weights.distinct().find(quantised) else {
            let word = file_type(weights.usual()).0;
            let cannot =
                vec![format!("weights in {weights}: without quantised ones a file has one type, {word}")];
            return Self { name: named(word), quantise: None, cannot };
        };
        let word = |sublayer: Sublayer| file_type(weights.for_sublayer(sublayer)).0.to_lowercase();
        let mut kinds: Vec<Sublayer> =
            site.model.kinds().map(|(kind, _)| kind).flat_map(LayerKind::sublayers).copied().collect();
        kinds.sort_unstable();
        kinds.dedup();
        let types = kinds.into_iter().filter_map(|sublayer| Some((tensors(site, sublayer)?, word(sublayer))));
        let types: Vec<_> = types.map(|(names, word)| format!("--tensor-type '{names}={word}' ")).collect();
        let (ends, whole) = (word(Sublayer::Embed), file_type(whole).0);
        let name = named(&format!("{whole}-mixed"));
        let script = format!(
            "llama-quantize {}--token-embedding-type {ends} --output-tensor-type {ends} {} {} {whole}\n",
            types.concat(),
            quoted(&named("BF16")),
            quoted(&name),
        );
        let cannot = weights.distinct().filter_map(lost).collect();
        Self { name, quantise: Some(("quantize.sh".to_owned(), script)), cannot }
    }
}

/// The GGUF tensors of a sublayer's matrix, as a pattern; `None` where it has no matrix.
pub(super) fn tensors(site: &Site<'_>, sublayer: Sublayer) -> Option<&'static str> {
    let joined =
        matches!(site.model.architecture, Architecture::Phi3 | Architecture::GptNeoX | Architecture::Falcon);
    match sublayer {
        Sublayer::Qkv if site.model.latent().is_some() => Some("attn_(q|q_a|q_b|kv_a_mqa|kv_b|k_b|v_b)"),
        Sublayer::Qkv if joined => Some("attn_qkv"),
        Sublayer::Qkv => Some("attn_(q|k|v)"),
        Sublayer::Out => Some("attn_output"),
        Sublayer::FfnUp if site.model.architecture == Architecture::Phi3 => Some("ffn_up"),
        Sublayer::FfnUp if site.model.activation.is_gated() => Some("ffn_(gate|up)"),
        Sublayer::FfnUp => Some("ffn_up"),
        Sublayer::FfnDown => Some("ffn_down"),
        Sublayer::Router => Some("ffn_gate_inp"),
        Sublayer::SharedExpert => Some("ffn_(gate|up|down)_shexp"),
        Sublayer::Experts => Some("ffn_(gate|up|down)_exps"),
        Sublayer::Embed | Sublayer::Attention | Sublayer::Head => None,
    }
}

/// The type of the KV cache, and how it differs from the plan's.
pub(super) fn kv_type(kv: DType) -> (&'static str, Option<String>) {
    match kv {
        DType::F32 => ("f32", None),
        DType::F16 => ("f16", None),
        DType::Bf16 => ("bf16", None),
        DType::Int8 => ("q8_0", None),
        DType::Int4 => ("q4_0", None),
        DType::Fp8 => ("q8_0", Some("KV in fp8: q8_0 takes 6 % more".to_owned())),
        other => ("q4_0", Some(format!("KV in {other}: q4_0 is not the same"))),
    }
}

/// The type of the model's file, and how it differs from the plan's.
fn file_type(weights: DType) -> (&'static str, Option<String>) {
    match weights {
        DType::F32 => ("F32", None),
        DType::F16 => ("F16", None),
        DType::Bf16 => ("BF16", None),
        DType::Int8 => ("Q8_0", None),
        DType::Int4 => ("Q4_0", None),
        DType::Fp8 => ("Q8_0", Some("weights in fp8: Q8_0 takes 6 % more".to_owned())),
        other => ("Q4_0", Some(format!("weights in {other}: Q4_0 is not the same"))),
    }
}
