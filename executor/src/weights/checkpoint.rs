//! A Hugging Face model folder or a GGUF file, checked before use.

use crate::error::ExecutorError;
use crate::weights::format::TensorFormat;
use crate::weights::fused::{FusedTensor, Tensor, TensorRows};
use crate::weights::gguf::absorbed;
use crate::weights::layouts::scaled::{self, MatrixScales, ScalePlace};
use crate::weights::layouts::stacked;
use crate::weights::mtp_names::ModuleNames;
use crate::weights::shard::{RowOrder, Shard, StoredTensor};
use crate::weights::tensors;
use hwprofiles::DType;
use kernels::{PANEL, Weights};
use scenarios::{Gguf, Model, WeightFormats};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Rows of a tensor that are read at once: a panel's worth.
const ROWS_AT_ONCE: u64 = 16;

/// A model's open files. Every tensor that the model needs is present, with the right shape and a
/// format that is read.
#[derive(Debug)]
pub struct Checkpoint {
    model: Model,
    folder: PathBuf,
    shards: Vec<Shard>,
    /// By tensor: index of the shard that has it.
    holders: BTreeMap<String, usize>,
    tiled_heads: bool,
}

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct ShardIndex {
    weight_map: BTreeMap<String, String>,
}

/// The part of `generation_config.json` and of `config.json` that names the end of text.
#[derive(Deserialize)]
struct EndOfText {
    eos_token_id: Option<TokenIds>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenIds {
    One(u32),
    Several(Vec<u32>),
}

impl Checkpoint {
    /// Opens a folder with `config.json` and either `model.safetensors` or the shards that
    /// `model.safetensors.index.json` names, or a GGUF file. Reads headers only.
    ///
    /// # Errors
    /// The model cannot be run (an indexer, shared keys and values). A file is missing, cut short
    /// or malformed. The index names tensors that its files do not have. A tensor is missing, has
    /// another shape than the configuration gives it, or a format that is not read.
    pub fn open(folder: &Path) -> Result<Self, ExecutorError> {
        if folder.extension().is_some_and(|kind| kind == "gguf") {
            return Self::from_gguf(folder);
        }
        let model = Model::from_folder(folder)?;
        tensors::check_runnable(&model)?;
        Self::from_folder(model, folder)
    }

    /// Opens the tensors of the MTP module of the model in `folder` ([`Model::mtp_module`]), as
    /// [`Checkpoint::open`] opens the model's.
    ///
    /// # Errors
    /// As there; the model has no such module; the files have none of its tensors.
    pub fn open_mtp(folder: &Path) -> Result<Self, ExecutorError> {
        if folder.is_file() {
            let wanted = "MTP modules are read from safetensors folders: name one, or a draft model";
            return Err(ExecutorError::refused("speculative.draft", folder.display(), wanted));
        }
        let module = tensors::runnable_module(&Model::from_folder(folder)?)?;
        Self::from_folder(module, folder).map_err(|error| match error {
            ExecutorError::MissingTensor { path, tensor, model, expected } => {
                ExecutorError::MissingModule { path, tensor, module: model, expected }
            }
            error => error,
        })
    }

    fn from_folder(model: Model, folder: &Path) -> Result<Self, ExecutorError> {
        let index = folder.join("model.safetensors.index.json");
        let shards = if index.exists() {
            open_indexed(folder, &index)?
        } else {
            vec![Shard::open(&folder.join("model.safetensors"))?]
        };
        Self::from_shards(model, folder, shards)
    }

    fn from_gguf(file: &Path) -> Result<Self, ExecutorError> {
        let gguf = Gguf::open(file)?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let model = Model::from_gguf(&name, &file.display().to_string(), &gguf)?;
        tensors::check_runnable(&model)?;
        let shard = Shard::from_gguf(file, &gguf, &model)?;
        let tiled_heads = matches!(gguf.text("general.architecture"), Some("qwen35" | "qwen35moe"));
        Ok(Self { tiled_heads, ..Self::from_shards(model, file, vec![shard])? })
    }

    fn from_shards(model: Model, folder: &Path, mut shards: Vec<Shard>) -> Result<Self, ExecutorError> {
        stacked::add_experts(&model, &mut shards)?;
        scaled::add_float4(&model, &mut shards);
        let mut holders = BTreeMap::new();
        for (number, shard) in shards.iter().enumerate() {
            holders.extend(shard.tensors.keys().map(|name| (name.clone(), number)));
        }
        let checkpoint = Self { model, folder: folder.to_owned(), shards, holders, tiled_heads: false };
        for fused in tensors::all_fused(&checkpoint.model) {
            for tensor in checkpoint.as_stored(&fused).tensors() {
                checkpoint.check(&tensor)?;
            }
        }
        Ok(checkpoint)
    }

    /// The model that the configuration describes, named after the folder.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Whether the value heads that one head of keys serves lie apart, as
    /// [`kernels::DeltaNet::tiled`] says. GGUF files of Qwen3.5 have them so.
    pub(crate) fn tiled_heads(&self) -> bool {
        self.tiled_heads
    }

    /// The tokens that end a text: `eos_token_id` of `generation_config.json`, or else of
    /// `config.json`; for a GGUF file `tokenizer.ggml.eos_token_id`. Empty where no file names any.
    ///
    /// # Errors
    /// A file is not JSON, or its `eos_token_id` is neither a token nor a list of tokens.
    pub fn end_of_text(&self) -> Result<Vec<u32>, ExecutorError> {
        if self.folder.is_file() {
            let gguf = Gguf::open(&self.folder)?;
            let token = gguf.metadata.get("tokenizer.ggml.eos_token_id").and_then(serde_json::Value::as_u64);
            return Ok(token.and_then(|token| u32::try_from(token).ok()).into_iter().collect());
        }
        for name in ["generation_config.json", "config.json"] {
            let path = self.folder.join(name);
            let text = match hwprofiles::read_input(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => return Err(ExecutorError::File { path, source }),
            };
            let wrong = |reason: String| ExecutorError::Malformed { path: path.clone(), reason };
            let text: EndOfText = serde_json::from_slice(&text).map_err(|error| {
                wrong(format!("eos_token_id: a token or a list of tokens is wanted: {error}"))
            })?;
            match text.eos_token_id {
                Some(TokenIds::One(token)) => return Ok(vec![token]),
                Some(TokenIds::Several(tokens)) => return Ok(tokens),
                None => {}
            }
        }
        Ok(vec![])
    }

    /// The stored tensor with this name. Checkpoints of the bare transformer omit the first word of
    /// every name; those of image models add a word for the language model.
    fn find(&self, name: &str) -> Option<(&Shard, &StoredTensor)> {
        match ModuleNames::new(&self.model) {
            Some(names) => names.places(name).iter().find_map(|name| self.find_named(name)),
            None => self.find_named(name),
        }
    }

    fn find_named(&self, name: &str) -> Option<(&Shard, &StoredTensor)> {
        let bare = ["model.", "gpt_neox.", "transformer."].iter().find_map(|base| name.strip_prefix(base));
        let within = name.strip_prefix("model.").map(|rest| format!("model.language_model.{rest}"));
        let names =
            [Some(name.into()), bare.map(str::to_owned), within, Some(format!("language_model.{name}"))];
        names.into_iter().flatten().find_map(|name: String| {
            let shard = &self.shards[*self.holders.get(&name)?];
            Some((shard, shard.tensors.get(&name)?))
        })
    }

    fn check(&self, tensor: &Tensor) -> Result<(), ExecutorError> {
        let Some((shard, stored)) = self.find(&tensor.name) else {
            let path = match &self.shards[..] {
                [only] => only.path.clone(),
                _ => self.folder.clone(),
            };
            let (model, expected) = (self.model.name.clone(), tensor.shape.clone());
            let tensor = stacked::published_name(&self.model, &tensor.name);
            return Err(ExecutorError::MissingTensor { path, tensor, model, expected });
        };
        let (path, name) = (shard.path.clone(), tensor.name.clone());
        if stored.shape != tensor.shape {
            let (expected, found) = (tensor.shape.clone(), stored.shape.clone());
            return Err(ExecutorError::Shape { path, tensor: name, expected, found });
        }
        let row = stored.shape.iter().skip(1).product();
        if stored.format.and_then(|format| format.bytes(row)).is_none() {
            return Err(ExecutorError::DType { path, tensor: name, found: stored.format_name.clone() });
        }
        self.scales(tensor, (shard, stored)).map(drop)
    }

    /// Where the scales of `tensor` are, which is `stored`; `None` where it has none.
    fn scales<'a>(
        &'a self,
        tensor: &Tensor,
        stored: (&'a Shard, &'a StoredTensor),
    ) -> Result<Option<ScalePlace<'a>>, ExecutorError> {
        ScalePlace::find(&self.model, tensor, stored, |name| self.find(name))
    }

    /// Refuses a plan with weights in blocks of `dtype` for files that have no matrix in blocks.
    pub(crate) fn check_blocks(&self, dtype: DType) -> Result<(), ExecutorError> {
        let kept = |stored: &StoredTensor| {
            let columns = stored.shape.get(1).copied().unwrap_or(1);
            let format = stored.format;
            format == Some(TensorFormat::Fp4) || format.and_then(|it| it.kept(columns)).is_some()
        };
        if self.shards.iter().any(|shard| shard.tensors.values().any(kept)) {
            return Ok(());
        }
        let wanted = format!(
            "{} has no weights in blocks: plan with bf16, int8 or int4, or run a GGUF file in {dtype}",
            self.folder.display()
        );
        Err(ExecutorError::refused("formats.weights", dtype, wanted))
    }

    /// Whether the files have matrices of 8-bit floats beside others, which all keep their formats.
    pub(crate) fn has_float8(&self) -> bool {
        let published = self.model.published.as_deref().map(|formats| WeightFormats::from(*formats));
        published.is_some_and(|formats| formats.distinct().any(Weights::keeps_float8))
    }

    /// `fused`, whose rows of a larger tensor come from tensors of their own where the files have
    /// these.
    fn as_stored(&self, fused: &FusedTensor) -> FusedTensor {
        let mut fused = fused.clone();
        for share in &mut fused.sources {
            let alone = share.alone().filter(|alone| self.find(&alone.tensor.name).is_some());
            alone.into_iter().for_each(|alone| *share = alone);
        }
        fused
    }

    /// A reader of the rows of `fused`.
    pub(crate) fn reader(&self, fused: &FusedTensor) -> TensorReader<'_> {
        let fused = self.as_stored(fused);
        let source = |share: &TensorRows| {
            let (shard, stored) = self.find(&share.tensor.name).expect("`open` has checked every tensor");
            let scales =
                self.scales(&share.tensor, (shard, stored)).expect("`open` has checked every tensor");
            SourceTensor {
                shards: &self.shards,
                shard,
                stored,
                scales,
                read_scales: None,
                first: 0,
                bytes: Vec::new(),
                whole: Vec::new(),
            }
        };
        let sources = fused.sources.iter().map(source).collect();
        TensorReader { fused, sources }
    }

    /// All values of `fused`, which is a vector or a small table.
    pub(crate) fn values(&self, fused: &FusedTensor, out: &mut [f32]) -> Result<(), ExecutorError> {
        let mut rows = self.reader(fused);
        let columns = fused.columns() as usize;
        (0..fused.rows()).zip(out.chunks_exact_mut(columns)).try_for_each(|(row, out)| rows.read(row, out))
    }
}

/// Reads rows of a fused tensor, a few at a time.
pub(crate) struct TensorReader<'a> {
    fused: FusedTensor,
    sources: Vec<SourceTensor<'a>>,
}

struct SourceTensor<'a> {
    shards: &'a [Shard],
    shard: &'a Shard,
    stored: &'a StoredTensor,
    scales: Option<ScalePlace<'a>>,
    /// The scales, once a row was read.
    read_scales: Option<MatrixScales>,
    /// The row at which `bytes` begins.
    first: u64,
    bytes: Vec<u8>,
    /// All bytes of a tensor whose rows are columns in the file, or made of two tensors.
    whole: Vec<u8>,
}

impl SourceTensor<'_> {
    /// The scales, which are read once; `None` where there are none.
    fn scales(&mut self, name: &str) -> Result<Option<&MatrixScales>, ExecutorError> {
        if let (Some(place), None) = (self.scales, &self.read_scales) {
            self.read_scales = Some(place.read(name)?);
        }
        Ok(self.read_scales.as_ref())
    }

    /// Fills `bytes` with `rows` rows of `size` bytes from row `first` of the file on.
    fn fill(&mut self, first: u64, rows: u64, size: u64) -> Result<(), ExecutorError> {
        self.bytes.resize((rows * size) as usize, 0);
        self.first = first;
        match self.stored.order {
            RowOrder::Columns { width, apart } => {
                stacked::read_columns(self.shard, self.stored, [width, apart], &mut self.whole)?;
                stacked::gather_columns(&self.whole, self.stored, [width, apart], first, &mut self.bytes);
                Ok(())
            }
            RowOrder::Scaled { shard, scales, .. } => {
                // 17 bytes of `bytes` are 16 bytes of a block and an exponent.
                let blocks = first * size / 17;
                let at = [self.stored.start + 16 * blocks, scales + blocks];
                stacked::read_scaled([self.shard, &self.shards[shard]], at, &mut self.bytes)
            }
            RowOrder::Absorbed(parts) => {
                let rows = (&mut self.whole, &mut self.bytes[..]);
                absorbed::read_expansion(self.shard, self.stored, parts, first, rows)
            }
            _ => self.shard.read(&mut self.bytes, self.stored.start + first * size),
        }
    }
}

impl TensorReader<'_> {
    /// The format in which a source's rows are multiplied as they are in the file, where the plan
    /// says `planned`.
    pub fn kept(&self, source: usize, planned: DType) -> Option<DType> {
        let SourceTensor { stored, scales, .. } = &self.sources[source];
        let by_rows = !matches!(stored.order, RowOrder::Columns { .. });
        match (stored.format?, scales) {
            (TensorFormat::Fp8, scales) if by_rows => {
                let any = if Weights::keeps_float8(planned) { planned } else { DType::Fp8 };
                Some(scales.and_then(|scales| scales.float8()).unwrap_or(any))
            }
            (TensorFormat::Fp4, Some(scales)) => {
                let columns = self.fused.columns() as usize;
                Some(scales.float4()).filter(|&dtype| Weights::keeps_blocks(dtype, columns))
            }
            (format, _) => format.kept(self.fused.columns()),
        }
    }

    /// Whether each panel of `rows` is whole and has the same scales in all of its rows.
    pub fn panels_share_scales(&self, rows: &Range<u64>) -> bool {
        let place = |row: u64| {
            let (index, row) = self.fused.locate(row);
            (index, self.sources[index].scales.map_or(0, |scales| scales.scale_row(row)))
        };
        let mut panels = rows.clone().step_by(PANEL);
        (rows.end - rows.start).is_multiple_of(PANEL as u64)
            && panels.all(|panel| (panel + 1..panel + PANEL as u64).all(|row| place(row) == place(panel)))
    }

    /// The format in which a source's rows are packed where they are not kept.
    pub fn packed(&self, source: usize) -> DType {
        match self.sources[source].stored.format {
            Some(TensorFormat::Blocks(_) | TensorFormat::Fp8 | TensorFormat::Fp4) => DType::Int8,
            _ => DType::Bf16,
        }
    }

    /// Writes row `row` of the fused matrix into `out`.
    pub fn read(&mut self, row: u64, out: &mut [f32]) -> Result<(), ExecutorError> {
        let (index, format, at) = self.locate(row)?;
        let source = &mut self.sources[index];
        format.decode(&source.bytes[at], out);
        let tensor = &self.fused.sources[index].tensor;
        if let Some(scales) = source.scales(&tensor.name)? {
            scales.apply(self.fused.locate(row).1, out);
        }
        if tensor.plus_one && !source.stored.norms_include_one {
            out.iter_mut().for_each(|value| *value += 1.0);
        }
        if source.stored.negated_exp {
            out.iter_mut().for_each(|value| *value = (-*value).ln());
        }
        Ok(())
    }

    /// Writes the 8-bit floats of row `row` as they are in the file, and their scales, as
    /// [`Weights::from_float8`] takes them.
    ///
    /// # Errors
    /// [`ExecutorError::Malformed`] where one of them is no number.
    pub fn read_float8(
        &mut self,
        row: u64,
        numbers: &mut [u8],
        scales: &mut [f32],
    ) -> Result<(), ExecutorError> {
        let (index, _, at) = self.locate(row)?;
        let (name, row) = (&self.fused.sources[index].tensor.name, self.fused.locate(row).1);
        let source = &mut self.sources[index];
        numbers.copy_from_slice(&source.bytes[at]);
        if let Some(column) = numbers.iter().position(|number| number & 127 == 127) {
            let reason = format!(
                "tensor '{name}' has {:#04x} in row {row}, column {column}, which is no number in E4M3: the weights were not finite, or the file is damaged",
                numbers[column]
            );
            return Err(ExecutorError::Malformed { path: source.shard.path.clone(), reason });
        }
        match source.scales(name)? {
            Some(found) => found.row(row, scales),
            None => scales.fill(1.0),
        }
        Ok(())
    }

    /// Writes the blocks of row `row` into `out`: those of the file, or those that its 4-bit floats
    /// form with their scales. Returns what multiplies the row besides.
    ///
    /// # Errors
    /// [`ExecutorError::Malformed`] where a scale is no number.
    pub fn read_blocks(&mut self, row: u64, out: &mut [u8]) -> Result<f32, ExecutorError> {
        let (index, format, at) = self.locate(row)?;
        let (name, row) = (&self.fused.sources[index].tensor.name, self.fused.locate(row).1);
        let source = &mut self.sources[index];
        source.scales(name)?;
        match (format, &source.read_scales) {
            (TensorFormat::Fp4, Some(scales)) => {
                scales.blocks(row, &source.bytes[at], out).map_err(|column| {
                    let reason = format!(
                        "the scales of tensor '{name}' have no number in row {row}, column {column}: the weights were not finite, or the file is damaged"
                    );
                    ExecutorError::Malformed { path: source.shard.path.clone(), reason }
                })
            }
            _ => {
                out.copy_from_slice(&source.bytes[at]);
                Ok(1.0)
            }
        }
    }

    /// Reads row `row` of the fused matrix, if it is not held yet. Returns its source, its format
    /// and where in the source's bytes it is.
    fn locate(&mut self, row: u64) -> Result<(usize, TensorFormat, Range<usize>), ExecutorError> {
        let (index, row) = self.fused.locate(row);
        let source = &mut self.sources[index];
        let (format, row) =
            (source.stored.format.expect("`open` has checked every tensor"), source.stored.stored_row(row));
        let size = format.bytes(self.fused.columns()).expect("`open` has checked every tensor");
        let held = source.bytes.len() as u64 / size.max(1);
        if !(source.first..source.first + held).contains(&row) {
            source.fill(row, ROWS_AT_ONCE.min(source.stored.stored_rows() - row), size)?;
        }
        let at = ((row - source.first) * size) as usize;
        Ok((index, format, at..at + size as usize))
    }
}

/// Opens the shards of an index, and checks that they have the tensors that it lists.
fn open_indexed(folder: &Path, index: &Path) -> Result<Vec<Shard>, ExecutorError> {
    let text = hwprofiles::read_text(index)
        .map_err(|source| ExecutorError::File { path: index.to_owned(), source })?;
    let malformed = |reason: String| ExecutorError::Malformed { path: index.to_owned(), reason };
    let ShardIndex { weight_map } = serde_json::from_str(&text)
        .map_err(|error| malformed(format!("not an index of tensors: {error}")))?;
    let names: BTreeSet<&String> = weight_map.values().collect();
    if let Some(outside) = names.iter().find(|name| name.contains(['/', '\\'])) {
        return Err(malformed(format!(
            "shard '{outside}' is outside the folder; shards lie beside their index"
        )));
    }
    let shards = names.iter().map(|name| Shard::open(&folder.join(name))).collect::<Result<Vec<_>, _>>()?;
    for (tensor, name) in &weight_map {
        let shard = shards.iter().find(|shard| shard.path.ends_with(name));
        if shard.is_none_or(|shard| !shard.tensors.contains_key(tensor)) {
            return Err(malformed(format!("tensor '{tensor}' should be in '{name}' and is not there")));
        }
    }
    Ok(shards)
}
