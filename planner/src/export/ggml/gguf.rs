//! llama.cpp's names: number types, tensors, and a model's file.

use super::super::engine::ExportTarget;
use super::super::shell::quoted;
use super::super::site::Site;
use hwprofiles::DType;
use scenarios::{Architecture, GgufFileType, Mixer, Model, Sublayer, WeightClass, WeightFormats};

/// The file that the server reads.
#[derive(Debug, Clone)]
pub(super) struct ModelFile {
    /// Its name.
    pub name: String,
    /// Where it is published, if it is ([`scenarios::GgufRepository::file`]).
    pub published: Option<String>,
    /// Name and text of a script that makes the file, where classes of matrices have their own
    /// formats.
    pub quantise: Option<(String, String)>,
    /// How the file's types differ from the plan's formats.
    pub cannot: Vec<String>,
}

impl ModelFile {
    /// The file for the plan's weights.
    ///
    /// A plan with a kind of file uses such a file. `llama-quantize --pure` gives every tensor one
    /// type. Otherwise it takes a type for tensors by name (`--tensor-type`, a regular expression)
    /// and for the token table and the output projection; all other tensors get the file's type.
    pub fn from_plan(site: &Site<'_>) -> Self {
        let (weights, model) = (site.plan.formats.weights, &site.plan.model.name);
        let named = |word: &str| format!("{model}-{word}.gguf");
        let preset = site.plan.from.as_ref().map(|from| from.model.as_str());
        let repository = preset.and_then(Model::gguf_repository);
        let only = repository.and_then(|it| it.only).and_then(|kind| kind.parse().ok());
        if let Some(file) = weights.file().or_else(|| only.filter(|kind| has_experts_of(site, *kind))) {
            let published = repository.and_then(|it| it.file(file.name()));
            let name = named(&file.name().to_uppercase());
            return Self { name, published, quantise: None, cannot: differences(site, file) };
        }
        let own = |dtype: &DType| site.engine == ExportTarget::IkLlamaCpp && is_of_the_fork(*dtype);
        let others = weights.distinct().filter(|dtype| !own(dtype));
        let mut cannot: Vec<String> = others.filter_map(|dtype| tensor_type(dtype).1).collect();
        if let Some(dtype) = weights.one() {
            let word = tensor_type(dtype).0.to_uppercase();
            let quantise = pure_kind(dtype).map(|kind| {
                let (from, to) = (named("BF16"), named(&word));
                let script = format!("llama-quantize --pure {} {} {kind}\n", quoted(&from), quoted(&to));
                ("quantize.sh".to_owned(), script)
            });
            return Self { name: named(&word), published: None, quantise, cannot };
        }
        let Some(whole) = weights.distinct().find(|dtype| kind_of(*dtype).is_some()) else {
            let word = tensor_type(weights.usual()).0.to_uppercase();
            let why = format!("weights in {weights}: without quantised ones a file has one type, {word}");
            return Self { name: named(&word), published: None, quantise: None, cannot: vec![why] };
        };
        for (class, format) in
            weights.for_model(site.model).classes().filter(|(_, format)| format.one().is_none())
        {
            let main = tensor_type(format.main()).0;
            cannot
                .push(format!("{class} in {format}: all of its tensors become {main}; name the file itself"));
        }
        let word = |sublayer: Sublayer| tensor_type(weights.for_sublayer(sublayer).main()).0;
        let kinds = site.model.kinds().map(|(kind, _)| kind);
        let mut types: Vec<(Sublayer, &str)> = kinds
            .flat_map(|kind| kind.sublayers().iter().map(move |&sublayer| (kind, sublayer)))
            .filter_map(|(kind, sublayer)| Some((sublayer, tensors(site.model.shape(kind), sublayer)?)))
            .collect();
        types.sort_unstable();
        types.dedup();
        let types =
            types.into_iter().map(|(sublayer, names)| format!("--tensor-type '{names}={}' ", word(sublayer)));
        let types: Vec<_> = types.collect();
        let (embed, head) = (word(Sublayer::Embed), word(Sublayer::Head));
        let whole = kind_of(whole).unwrap_or("Q8_0");
        let name = named(&format!("{whole}-mixed"));
        let script = format!(
            "llama-quantize {}--token-embedding-type {embed} --output-tensor-type {head} {} {} {whole}\n",
            types.concat(),
            quoted(&named("BF16")),
            quoted(&name),
        );
        Self { name, published: None, quantise: Some(("quantize.sh".to_owned(), script)), cannot }
    }
}

/// Whether files of a kind have the plan's format of experts.
fn has_experts_of(site: &Site<'_>, kind: GgufFileType) -> bool {
    let experts = |weights: WeightFormats| weights.for_class(WeightClass::Experts);
    kind.formats(site.model).is_ok_and(|theirs| experts(theirs) == experts(site.plan.formats.weights))
}

/// The classes of matrices that files of a kind have in other formats than the plan.
fn differences(site: &Site<'_>, kind: GgufFileType) -> Vec<String> {
    let Ok(theirs) = kind.formats(site.model) else { return Vec::new() };
    let pairs =
        site.plan.formats.weights.for_model(site.model).classes().zip(theirs.for_model(site.model).classes());
    let differ = pairs.filter(|((_, ours), (_, theirs))| ours != theirs);
    differ
        .map(|((class, ours), (_, theirs))| format!("{class} in {ours}: such a file has {theirs}"))
        .collect()
}

/// The GGUF tensors of a sublayer's matrix in layers of `shape`, as a pattern; `None` where it has
/// no matrix.
pub(super) fn tensors(shape: &Model, sublayer: Sublayer) -> Option<&'static str> {
    let joined =
        matches!(shape.architecture, Architecture::Phi3 | Architecture::GptNeoX | Architecture::Falcon);
    match sublayer {
        Sublayer::Qkv if shape.latent().is_some() => Some("attn_(q|q_a|q_b|kv_a_mqa|kv_b|k_b|v_b)"),
        Sublayer::Qkv if matches!(shape.mixer, Mixer::Compressed(_)) => Some("attn_(q_a|q_b|kv)"),
        Sublayer::Qkv if matches!(shape.mixer, Mixer::Recurrent(_)) => {
            Some("(attn_qkv|attn_gate|ssm_in|ssm_ba)")
        }
        Sublayer::Out if matches!(shape.mixer, Mixer::Recurrent(_)) => Some("ssm_out"),
        Sublayer::Qkv if joined => Some("attn_qkv"),
        Sublayer::Qkv => Some("attn_(q|k|v)"),
        Sublayer::Out => Some("attn_output"),
        Sublayer::FfnUp if shape.architecture == Architecture::Phi3 => Some("ffn_up"),
        Sublayer::FfnUp if shape.activation.is_gated() => Some("ffn_(gate|up)"),
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
        DType::Int8 | DType::Q8_0 => ("q8_0", None),
        DType::Int4 | DType::Q4_0 => ("q4_0", None),
        DType::Fp8 => ("q8_0", Some("KV in fp8: q8_0 takes 6 % more".to_owned())),
        DType::Int2 => ("q4_0", Some("KV in int2: q4_0 is the smallest, and takes 50 % more".to_owned())),
        other => ("f16", Some(format!("KV in {other}: it has no such cache, f16 is used"))),
    }
}

/// ggml's word for the type of a tensor, and how it differs from the plan's format.
fn tensor_type(weights: DType) -> (&'static str, Option<String>) {
    match weights {
        DType::Int8 => ("q8_0", None),
        DType::Int4 => ("q4_0", None),
        DType::Fp8 | DType::Fp8Block => ("q8_0", Some(format!("weights in {weights}: Q8_0 takes 6 % more"))),
        DType::Int4G128 => ("q4_0", Some("weights in int4_g128: Q4_0 takes 8 % more".to_owned())),
        DType::Int2 => ("q2_k", Some("weights in int2: Q2_K takes 12 % less".to_owned())),
        DType::Nvfp4 => {
            let why =
                "weights in nvfp4: llama-quantize does not make them, convert a checkpoint that is in nvfp4";
            ("nvfp4", Some(why.to_owned()))
        }
        fork if is_of_the_fork(fork) => {
            (weights.name(), Some(format!("weights in {weights}: ik_llama.cpp alone has this type")))
        }
        other => (other.name(), None),
    }
}

/// Whether ik_llama.cpp has this type and llama.cpp does not.
fn is_of_the_fork(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::Iq6K
            | DType::Iq5K
            | DType::Iq4K
            | DType::Iq4Ks
            | DType::Iq4Kss
            | DType::Iq4Kt
            | DType::Iq3K
            | DType::Iq2K
    )
}

/// The kind of file whose tensors mostly have the type of this format, where `llama-quantize` has
/// one.
fn kind_of(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Int8 | DType::Fp8 | DType::Fp8Block | DType::Q8_0 => "Q8_0",
        DType::Int4 | DType::Int4G128 | DType::Q4_0 => "Q4_0",
        DType::Mxfp4 => "MXFP4_MOE",
        DType::Q4_1 => "Q4_1",
        DType::Q5_0 => "Q5_0",
        DType::Q5_1 => "Q5_1",
        DType::Q6K => "Q6_K",
        DType::Q5K => "Q5_K_S",
        DType::Q4K => "Q4_K_S",
        DType::Q3K => "Q3_K_S",
        DType::Q2K | DType::Int2 => "Q2_K_S",
        DType::Iq4Nl => "IQ4_NL",
        DType::Iq4Xs => "IQ4_XS",
        DType::Iq3S => "IQ3_S",
        DType::Iq3Xxs => "IQ3_XXS",
        DType::Iq2S => "IQ2_M",
        DType::Iq2Xs => "IQ2_XS",
        DType::Iq2Xxs => "IQ2_XXS",
        DType::Iq1M => "IQ1_M",
        DType::Iq1S => "IQ1_S",
        _ => return None,
    })
}

/// The kind to name with `--pure`, which a file of one type needs where its usual kind is a
/// mixture.
fn pure_kind(dtype: DType) -> Option<&'static str> {
    let plain = matches!(dtype, DType::Int8 | DType::Fp8 | DType::Fp8Block | DType::Q8_0 | DType::Mxfp4);
    kind_of(dtype).filter(|_| !plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;
    use scenarios::LayerKind;

    #[test]
    fn patterns_match_the_tensors_of_their_sublayer_alone() {
        for preset in Model::preset_names() {
            let model = Model::preset(preset).unwrap();
            let mut seen: Vec<LayerKind> = Vec::new();
            for layer in 0..model.layers {
                let kind = model.kind(layer);
                if seen.contains(&kind) {
                    continue;
                }
                seen.push(kind);
                let names = |sublayer: Sublayer| {
                    let tensors = model.tensor_names(layer, sublayer).into_iter();
                    tensors.filter(|tensor| tensor.numbers > 0).map(|tensor| tensor.name).collect::<Vec<_>>()
                };
                for &sublayer in kind.sublayers() {
                    let Some(pattern) = tensors(model.layer(layer), sublayer) else { continue };
                    let pattern = Regex::new(&format!(r"blk\.{layer}\.{pattern}\.")).unwrap();
                    for &other in kind.sublayers() {
                        for name in names(other) {
                            assert_eq!(
                                pattern.is_match(&name),
                                other == sublayer,
                                "{preset}: {pattern} {name}"
                            );
                        }
                    }
                }
            }
        }
    }
}
