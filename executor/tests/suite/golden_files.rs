//! The golden models' files, with weights drawn from their seeds.
//!
//! `weights.json` of a golden folder lists the draws of numpy's `default_rng(seed).standard_normal`
//! in float32 that `golden_weights.py` made. Here the same numbers are drawn again: seeds as in
//! numpy's `SeedSequence`, bits from PCG64, normal numbers by the ziggurat of numpy's
//! `distributions.c`. A digest shows that every bit is the same.

use rand::Rng;
use rand_pcg::Pcg64;
use safetensors::tensor::{Dtype, TensorView};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

/// What `weights.json` says.
#[derive(Deserialize)]
struct Weights {
    seed: u32,
    digest: String,
    /// Name, shape, mean and deviation, in the order in which they were drawn.
    tensors: Vec<(String, Vec<usize>, Option<f32>, f32)>,
}

/// What `NAME.gguf.json` says of the data behind the head of a GGUF file.
#[derive(Deserialize)]
struct GgufData {
    digest: String,
    data_bytes: usize,
    /// Values of the folder's configuration that are others in the file.
    #[serde(default)]
    instead: BTreeMap<String, Value>,
    /// Where a piece of a tensor begins, from which tensor of the folder it is made, and how.
    tensors: Vec<(usize, String, Vec<Step>)>,
}

/// How a tensor of a folder is changed for a GGUF file: a word, and up to three numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum Step {
    /// "transpose": the last two dimensions change places. "join": the first two become one.
    /// "rate": −eˣ.
    Zero((String,)),
    /// "pairs": in each of so many heads, rows that rotate together lie side by side. "split": the
    /// first dimension becomes two, of which this is the first. "scale", "add".
    One(String, f32),
    /// "concatenate": q, k and v, which alternate in so many groups of so many heads of q, one
    /// after the other. "fill": this value so many times.
    Two(String, f32, usize),
    /// "rows": of each run of so many rows, from this one on so many. "tiled": of so many groups of
    /// so many heads each, the first of all groups, then the second, from this row on.
    Three(String, usize, usize, usize),
}

/// The folder of a golden model under `tests/golden`, without its weights.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// A golden model's folder with all of its files.
pub fn folder(name: &str) -> PathBuf {
    static WRITTEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden").join(name);
    let mut written = WRITTEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if written.insert(name.to_owned()) {
        write_folder(name, &folder);
    }
    folder
}

/// The GGUF file of a golden model.
pub fn gguf_file(name: &str) -> PathBuf {
    let (head, listed) = (format!("{name}.gguf.head"), format!("{name}.gguf.json"));
    let listed: GgufData = serde_json::from_slice(&read(&source(&listed))).expect("a list of tensors");
    let tensors = draw(name);
    let mut data = vec![0; listed.data_bytes];
    for (start, from, steps) in &listed.tensors {
        let source = if from.is_empty() { (vec![0], vec![]) } else { tensors[from].clone() };
        let (_, values) = steps.iter().fold(source, |(shape, values), step| step.apply(shape, values));
        let bytes = data[*start..].chunks_exact_mut(4);
        bytes.zip(&values).for_each(|(bytes, value)| bytes.copy_from_slice(&value.to_le_bytes()));
    }
    let words = data.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("4 bytes")));
    assert_eq!(digest(words), listed.digest, "{name}.gguf");
    let file = folder(name).with_extension("gguf");
    replace(&file, &[read(&source(&head)), data].concat());
    file
}

/// The configuration of the folder that a golden model's GGUF file is made of.
pub fn gguf_config(name: &str) -> Value {
    let json = |name: &str| read(&source(name));
    let listed: GgufData = serde_json::from_slice(&json(&format!("{name}.gguf.json"))).expect("a list");
    let mut config: Value = serde_json::from_slice(&json(&format!("{name}/config.json"))).expect("JSON");
    for (key, value) in listed.instead {
        match (&mut config[&key], value) {
            (Value::Object(whole), Value::Object(part)) => whole.extend(part),
            (whole, value) => *whole = value,
        }
    }
    config
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Puts a file into place at once: other tests, here or in other programs, may write or read the
/// same one.
fn replace(path: &Path, bytes: &[u8]) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let partial = path.with_extension(format!("{}.{count}.part", std::process::id()));
    fs::write(&partial, bytes).expect("a file to write");
    fs::rename(&partial, path).expect("written");
}

fn write_folder(name: &str, folder: &Path) {
    fs::create_dir_all(folder).expect("a folder to write to");
    for entry in fs::read_dir(source(name)).expect("a golden folder") {
        let path = entry.expect("an entry").path();
        replace(&folder.join(path.file_name().expect("a file name")), &read(&path));
    }
    let tensors = draw(name);
    for (file, names) in shards(folder, &tensors) {
        let own = names.into_iter().map(|name| (name.to_owned(), tensors[name].clone())).collect();
        write_tensors(&folder.join(file), &own);
    }
}

/// Writes a safetensors file.
pub fn write_tensors(path: &Path, tensors: &Tensors) {
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let data: Vec<_> =
        tensors.iter().map(|(name, (shape, values))| (name, shape.clone(), bytes(values))).collect();
    let views = data.iter().map(|(name, shape, bytes)| {
        (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("as many bytes as it says"))
    });
    let format = std::iter::once(("format".to_owned(), "pt".to_owned())).collect();
    replace(path, &safetensors::serialize(views, Some(format)).expect("serialised"));
}

/// Shape and values of tensors by name.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The names of the tensors in each file: of the index where there is one.
fn shards<'a>(folder: &Path, tensors: &'a Tensors) -> BTreeMap<String, Vec<&'a str>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let index = fs::read(folder.join("model.safetensors.index.json")).ok();
    let index: Option<Index> = index.map(|text| serde_json::from_slice(&text).expect("an index"));
    let mut shards = BTreeMap::<String, Vec<&str>>::new();
    for name in tensors.keys() {
        let file = index.as_ref().map_or("model.safetensors", |index| &index.weight_map[name]);
        shards.entry(file.to_owned()).or_default().push(name);
    }
    shards
}

/// Draws the tensors of a golden model.
pub fn draw(name: &str) -> Tensors {
    let listed = read(&source(name).join("weights.json"));
    let listed: Weights = serde_json::from_slice(&listed).expect("a list of tensors");
    let mut normals = Normals::new(listed.seed);
    let mut all = Vec::new();
    for (name, shape, mean, deviation) in listed.tensors {
        let value = |normal| mean.map_or(deviation * normal, |mean| mean + deviation * normal);
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| value(normals.next())).collect();
        all.push((name, (shape, values)));
    }
    let words = all.iter().flat_map(|(_, (_, values))| values.iter().map(|value| value.to_bits()));
    assert_eq!(digest(words), listed.digest, "{name}: the weights that transformers had");
    all.into_iter().collect()
}

/// FNV-1a over words of 32 bits.
fn digest(words: impl Iterator<Item = u32>) -> String {
    let step = |value: u64, word| (value ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", words.fold(0xcbf2_9ce4_8422_2325, step))
}

impl Step {
    fn apply(&self, mut shape: Vec<usize>, mut values: Vec<f32>) -> (Vec<usize>, Vec<f32>) {
        match self {
            Step::Zero((step,)) if step == "transpose" => {
                let [.., rows, columns] = shape[..] else { panic!("a matrix is wanted: {shape:?}") };
                let turned = |matrix: &[f32]| -> Vec<f32> {
                    (0..rows * columns).map(|at| matrix[at % rows * columns + at / rows]).collect()
                };
                values = values.chunks(rows * columns).flat_map(turned).collect();
                let last = shape.len() - 1;
                shape.swap(last - 1, last);
            }
            Step::Zero((step,)) if step == "join" => {
                let first = shape.remove(0);
                shape[0] *= first;
            }
            // In f64: libraries differ in the last bit, which is rounded away here.
            Step::Zero((step,)) if step == "rate" => {
                values.iter_mut().for_each(|x| *x = -f64::from(*x).exp() as f32);
            }
            Step::One(step, number) if step == "scale" => values.iter_mut().for_each(|x| *x *= number),
            Step::One(step, number) if step == "add" => values.iter_mut().for_each(|x| *x += number),
            Step::One(step, number) if step == "split" => {
                let first = *number as usize;
                shape[0] /= first;
                shape.insert(0, first);
            }
            Step::Two(step, number, count) if step == "fill" => {
                values.extend(std::iter::repeat_n(*number, *count));
                shape[0] += count;
            }
            _ => {
                let order = self.order(shape[0]);
                (values, shape[0]) = (rows(&values, &shape, order.iter().copied()), order.len());
            }
        }
        (shape, values)
    }

    /// The folder's row of each row, of `count` rows.
    fn order(&self, count: usize) -> Vec<usize> {
        match self {
            Step::One(step, heads) if step == "pairs" => {
                let half = count / *heads as usize / 2;
                // Row 2 i + j of a head is row i + j · half of the folder's.
                let from = |row: usize| row / (2 * half) * 2 * half + row % 2 * half + row % (2 * half) / 2;
                (0..count).map(from).collect()
            }
            Step::Two(step, groups, heads) if step == "concatenate" => {
                let groups = *groups as usize;
                let head = count / groups / (heads + 2);
                let part = |first: usize, count: usize| {
                    let group = move |group| (group * (heads + 2) + first) * head;
                    (0..groups).flat_map(move |it| group(it)..group(it) + count * head)
                };
                part(0, *heads).chain(part(*heads, 1)).chain(part(heads + 1, 1)).collect()
            }
            Step::Three(step, run, first, rows) if step == "rows" => {
                (0..count).filter(|row| (*first..first + rows).contains(&(row % run))).collect()
            }
            Step::Three(step, groups, each, first) if step == "tiled" => {
                let head = (count - first) / groups / each;
                let from = |row: usize| {
                    let (number, within) = (row / head, row % head);
                    first + (number % groups * each + number / groups) * head + within
                };
                (0..*first).chain((0..count - first).map(from)).collect()
            }
            Step::Zero((step,)) | Step::One(step, _) | Step::Two(step, ..) | Step::Three(step, ..) => {
                panic!("unknown step '{step}'")
            }
        }
    }
}

/// A matrix (or vector) with its rows in another order.
fn rows(values: &[f32], shape: &[usize], order: impl Iterator<Item = usize>) -> Vec<f32> {
    let columns = values.len() / shape[0];
    order.flat_map(|row| &values[row * columns..][..columns]).copied().collect()
}

/// Normal numbers of numpy's `default_rng`, in float32.
struct Normals {
    random: Pcg64,
    /// The upper half of the last 64 random bits, if it was not used yet.
    half: Option<u32>,
}

/// Layers of the ziggurat, the base first.
struct Ziggurat {
    /// Right edges, divided by 2²³.
    widths: [f32; 256],
    /// Below these a point lies inside the layer above, and so under the curve.
    inside: [u32; 256],
    /// The curve's values at the right edges.
    heights: [f32; 256],
}

/// Right edge of the base, and the area of each layer (Marsaglia and Tsang 2000, 256 layers).
const EDGE: f64 = 3.654_152_885_361_009;
const AREA: f64 = 0.004_928_673_233_974_658;

static ZIGGURAT: LazyLock<Ziggurat> = LazyLock::new(|| {
    let curve = |x: f64| (-0.5 * x * x).exp();
    let mut edges = [0.0; 256];
    edges[255] = EDGE;
    for layer in (1..255).rev() {
        let height = AREA / edges[layer + 1] + curve(edges[layer + 1]);
        edges[layer] = (-2.0 * f64::ln(height)).sqrt();
    }
    let scale = f64::from(1 << 23);
    let width = |layer: usize| if layer == 0 { AREA / curve(EDGE) } else { edges[layer] };
    let inside = |layer: usize| match layer {
        0 => EDGE * curve(EDGE) / AREA,
        1 => 0.0,
        _ => edges[layer - 1] / edges[layer],
    };
    Ziggurat {
        widths: std::array::from_fn(|layer| (width(layer) / scale) as f32),
        inside: std::array::from_fn(|layer| (inside(layer) * scale) as u32),
        heights: std::array::from_fn(|layer| curve(edges[layer]) as f32),
    }
});

impl Normals {
    fn new(seed: u32) -> Self {
        let [a, b, c, d] = seed_words(seed).map(u128::from);
        Self { random: Pcg64::new(a << 64 | b, c << 64 | d), half: None }
    }

    fn bits(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        let bits = self.random.next_u64();
        self.half = Some((bits >> 32) as u32);
        bits as u32
    }

    /// Uniform, at least 0 and below 1.
    fn uniform(&mut self) -> f32 {
        (self.bits() >> 8) as f32 * (1.0 / 16_777_216.0)
    }

    /// The next number: numpy's `random_standard_normal_f`.
    fn next(&mut self) -> f32 {
        let ziggurat = &*ZIGGURAT;
        loop {
            let bits = self.bits();
            let (layer, negative, place) = ((bits & 255) as usize, bits >> 8 & 1 == 1, bits >> 9 & 0x7f_ffff);
            let x = place as f32 * ziggurat.widths[layer];
            let x = if negative { -x } else { x };
            if place < ziggurat.inside[layer] {
                return x;
            }
            if layer == 0 {
                loop {
                    let beyond = (1.0 / EDGE) as f32 * -(-self.uniform()).ln_1p();
                    let height = -(-self.uniform()).ln_1p();
                    if height + height > beyond * beyond {
                        let x = EDGE as f32 + beyond;
                        return if place >> 8 & 1 == 1 { -x } else { x };
                    }
                }
            }
            let [above, below] = [ziggurat.heights[layer - 1], ziggurat.heights[layer]];
            let height = (above - below) * self.uniform() + below;
            if f64::from(height) < (-0.5 * f64::from(x) * f64::from(x)).exp() {
                return x;
            }
        }
    }
}

/// The 256 bits that numpy's `SeedSequence(seed)` gives to PCG64.
fn seed_words(seed: u32) -> [u64; 4] {
    let mut constant = 0x43b0_d7e5_u32;
    let mut hash = |value: u32| {
        let value = value ^ constant;
        constant = constant.wrapping_mul(0x931e_8875);
        let value = value.wrapping_mul(constant);
        value ^ value >> 16
    };
    let mut pool = [seed, 0, 0, 0].map(&mut hash);
    for from in 0..4 {
        for to in (0..4).filter(|to| *to != from) {
            let (left, right) =
                (pool[to].wrapping_mul(0xca01_f9dd), hash(pool[from]).wrapping_mul(0x4973_f715));
            let mixed = left.wrapping_sub(right);
            pool[to] = mixed ^ mixed >> 16;
        }
    }
    let mut constant = 0x8b51_f9dd_u32;
    let words: Vec<u32> = (0..8)
        .map(|index| {
            let value = pool[index % 4] ^ constant;
            constant = constant.wrapping_mul(0x58f3_8ded);
            let value = value.wrapping_mul(constant);
            value ^ value >> 16
        })
        .collect();
    std::array::from_fn(|index| u64::from(words[2 * index]) | u64::from(words[2 * index + 1]) << 32)
}
