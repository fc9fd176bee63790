//! A GPU's rates fitted to measured points, and how far the fit is off.

use super::layer_points::{LayerFacts, LayerTable};
use super::lookup::{machine_library, model};
use crate::error::{Error, OrError, Result};
use hwprofiles::{
    DevicePoints, GpuPart, LinkPart, MeasuredPoints, MemoryId, Profile, Provenance, plain_name,
    write_atomically, yaml,
};
use reports::{OperationErrors, OperationSummary};
use serde_json::{Value, json};
use sim::serving::TableText;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// What to fit.
#[derive(Debug, Clone, Default)]
pub struct GpuFitOptions {
    /// CSV files of points.
    pub points: Vec<PathBuf>,
    /// The GPU, a shipped one or a file with its peak rates and bandwidth; where nothing is said,
    /// the one of the column gpu.
    pub gpu: Option<String>,
    /// The only value of the column gpu that is kept.
    pub only: Option<String>,
    /// The model of tables of layer times.
    pub model: Option<String>,
    /// The GPUs that share each layer in tables of layer times.
    pub ranks: u64,
    /// The day that files record, `YYYY-MM-DD`.
    pub date: String,
}

/// What was fitted for one GPU.
#[derive(Debug, Clone)]
pub struct FittedGpu {
    /// The GPU with its fitted rates.
    pub part: GpuPart,
    /// Its link to the host, where transfers were measured.
    pub link: Option<LinkPart>,
    /// The link between such GPUs, where all-reduces were measured.
    pub peer: Option<LinkPart>,
    /// How many points there are of each kind of operation.
    pub counts: BTreeMap<String, usize>,
    /// The errors of points that were left out of the fit and predicted; absent where there are too
    /// few points.
    pub errors: Option<OperationSummary>,
}

/// Fits the rates of every GPU that the points are of.
///
/// # Errors
/// Names the file and line of a point that is wrong, or the GPU that is not known.
pub fn fit_gpus(options: &GpuFitOptions) -> Result<Vec<FittedGpu>> {
    let (mut points, mut layers) = (MeasuredPoints::default(), LayerFacts::default());
    for path in &options.points {
        let name = path.display().to_string();
        let unreadable = |error| Error::input(format!("{name}: cannot be read: {error}"));
        let mut reader = BufReader::new(hwprofiles::open_input(path).map_err(unreadable)?);
        let begin = reader.fill_buf().map_err(unreadable)?;
        match LayerTable::from_header(&String::from_utf8_lossy(begin)) {
            None => points.read(reader, &name).or_input()?,
            Some(kind) => {
                let text = io::read_to_string(reader).map_err(unreadable)?;
                let without = || {
                    Error::input(format!(
                        "{name} holds layer times: say of which model, as --model llama-3.1-8b"
                    ))
                };
                let model = model(options.model.as_deref().ok_or_else(without)?)?;
                let table = TableText { file: &name, text: &text };
                layers.read(kind, table, &model, options.ranks.max(1), &mut points)?;
            }
        }
    }
    let devices = wanted_devices(&points, options)?;
    let parts: Vec<_> = devices.iter().map(|(name, _)| base_part(name, options)).collect::<Result<_>>()?;
    devices.iter().zip(&parts).map(|((_, points), part)| fit(part, points, &layers, options)).collect()
}

/// The devices that are wanted, with their points.
fn wanted_devices<'a>(
    points: &'a MeasuredPoints,
    options: &GpuFitOptions,
) -> Result<Vec<(&'a str, &'a DevicePoints)>> {
    let only = options.only.as_deref().map(plain_name);
    let wanted = |(name, _): &(&str, _)| only.as_ref().is_none_or(|only| only == name);
    let devices: Vec<_> = points.devices().filter(wanted).collect();
    let names = || points.devices().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    match (&options.gpu, &devices[..]) {
        (_, []) => {
            let only = only.unwrap_or_default();
            let names = names();
            Err(Error::input(format!("--only {only}: there are no such points, but points of {names}")))
        }
        (Some(gpu), [_, _, ..]) => {
            Err(Error::input(format!("the points are of {}: choose those of '{gpu}' with --only", names())))
        }
        (Some(gpu), [(name, _)]) if only.is_none() && !name.is_empty() && *name != plain_name(gpu) => {
            Err(Error::input(format!(
                "the points are of '{name}', not of '{gpu}': say `--only {name}` to use them all the same"
            )))
        }
        (None, devices) if devices.iter().any(|(name, _)| name.is_empty()) => Err(Error::input(
            "the points do not say of which GPU they are: say `--gpu h100-sxm` (`fulcrum machine \
             list` names those), or `--gpu FILE`, or give them a column gpu",
        )),
        _ => Ok(devices),
    }
}

/// The part whose datasheet the fit starts from.
fn base_part(name: &str, options: &GpuFitOptions) -> Result<GpuPart> {
    let name = options.gpu.as_deref().unwrap_or(name);
    let found = machine_library().profile(name).map_err(|error| {
        let hint = "for another GPU write a file with its peak rates, bandwidth, multiprocessors and L2 (as those \
                    of `fulcrum machine show h100-sxm`) and name it with --gpu";
        Error::input(format!("{error}; {hint}"))
    });
    match found? {
        Profile::Gpu(part) => Ok(*part),
        other => Err(Error::input(format!("'{name}' is {}, but a GPU is wanted here", other.kind()))),
    }
}

fn fit(
    part: &GpuPart,
    points: &DevicePoints,
    layers: &LayerFacts,
    options: &GpuFitOptions,
) -> Result<FittedGpu> {
    let names = options.points.iter().filter_map(|path| path.file_name());
    let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    let command = format!("fulcrum machine fit {}", names.join(" "));
    let source = Provenance::Measured { date: options.date.clone(), command, spread: points.spread() };
    let link = LinkPart::fitted(&format!("{}-link", part.gpu), &points.transfers(), &source).or_input()?;
    let mut counts = layers.counts.clone();
    for (operation, _) in points.operations() {
        *counts.entry(operation.kind()).or_default() += 1;
    }
    let errors = cross_validation(part, points, &source)?;
    let peer = layers.peer_link(&format!("{}-peer", part.gpu), &source);
    let part = layers.with_small_kernel(part.fitted(points, &source).or_input()?, &source);
    Ok(FittedGpu { part, link, peer, counts, errors })
}

/// How far each point lies from the prediction of a fit to the other points: a fifth is left out in
/// turn.
fn cross_validation(
    part: &GpuPart,
    points: &DevicePoints,
    source: &Provenance,
) -> Result<Option<OperationSummary>> {
    const FOLDS: usize = 5;
    let mut errors = OperationErrors::default();
    for fold in 0..FOLDS {
        let (test, rest) = points.fold(fold, FOLDS);
        if test.is_empty() {
            return Ok(None);
        }
        let device = part.fitted(&rest, source).or_input()?.device(MemoryId(0));
        for (line, (operation, time)) in (1..).zip(test.operations()) {
            let estimate = operation.time_on(&device).or_failed()?;
            errors.add((0, ""), line, &operation, &estimate, Some(time));
        }
    }
    Ok(Some(errors.summary()))
}

impl FittedGpu {
    /// The fit in words.
    pub fn to_text(&self) -> String {
        let counts: Vec<_> = self.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let mut text = format!("{}: {}\n", self.part.gpu, counts.join(", "));
        for (dtype, rates) in &self.part.gemm {
            let Some(surface) = rates.surface() else { continue };
            let value = |name| surface.parameters().find(|(it, ..)| *it == name).map(|(_, value, _)| value);
            let launch = value("launch").map(|it| format!("; at least {:.2} us", it * 1e6));
            let share =
                value("bandwidth_share").map(|it| format!("; {:.0} % of the bandwidth", it.min(1.0) * 100.0));
            let details = launch.into_iter().chain(share).collect::<String>();
            text += &format!("  {dtype} products: 80 % within ±{:.1} %{details}\n", surface.spread() * 100.0);
        }
        if let Some(link) = &self.link {
            text += &format!(
                "  link: {} + bytes / {} to the device, {} to the host\n",
                link.latency.value, link.to_device.value, link.to_host.value
            );
        }
        if let Some(time) = &self.part.kernel {
            text += &format!("  a small kernel: {}\n", time.value);
        }
        if let Some(sums) = self.peer.as_ref().and_then(|peer| peer.all_reduce.as_ref()) {
            text += &format!("  all-reduce: {} a step + bytes / {}\n", sums.step.value, sums.bandwidth.value);
        }
        match &self.errors {
            Some(errors) => {
                text + "each fifth of the points left out and predicted from the rest:\n" + &errors.to_text()
            }
            None => text + "too few points to leave some out and see how far off the fit is\n",
        }
    }

    /// The fit as JSON.
    pub fn to_json(&self) -> Value {
        let surfaces = self.part.gemm.iter().filter_map(|(dtype, rates)| Some((dtype, rates.surface()?)));
        let products: BTreeMap<_, _> = surfaces
            .map(|(dtype, surface)| {
                let parameters: BTreeMap<_, _> = surface
                    .parameters()
                    .map(|(name, value, unit)| (name, json!({"value": value, "unit": unit})))
                    .collect();
                (dtype.name(), json!({"band": surface.spread(), "parameters": parameters}))
            })
            .collect();
        json!({
            "gpu": self.part.gpu,
            "points": self.counts,
            "products": products,
            "link": self.link,
            "peer": self.peer,
            "kernel": self.part.kernel,
            "left_out": self.errors,
        })
    }

    /// Writes the parts of `fitted` to `out`, which is a file for a single part and a folder
    /// otherwise; the paths that were written.
    ///
    /// # Errors
    /// There are several parts and `out` is one file, or it cannot be written.
    pub fn write_all(fitted: &[Self], out: &Path) -> Result<Vec<PathBuf>> {
        let paths = Self::paths(fitted, out)?;
        let texts = fitted.iter().flat_map(|gpu| gpu.texts().map(|(_, text)| text));
        paths.iter().zip(texts).try_for_each(|(path, text)| write_atomically(path, text).or_failed())?;
        Ok(paths)
    }

    /// The files that [`FittedGpu::write_all`] writes.
    ///
    /// # Errors
    /// There are several parts and `out` is one file.
    pub fn paths(fitted: &[Self], out: &Path) -> Result<Vec<PathBuf>> {
        let is_yaml = out.extension().is_some_and(|it| it == "yaml" || it == "yml");
        let is_file = is_yaml && !out.is_dir();
        let names: Vec<_> = fitted.iter().flat_map(|gpu| gpu.texts().map(|(name, _)| name)).collect();
        if is_file && names.len() > 1 {
            let (file, names) = (out.display(), names.join(", "));
            return Err(Error::input(format!("{file} is one file, but there are {names}: name a folder")));
        }
        let path = |name| if is_file { out.to_owned() } else { out.join(name) };
        Ok(names.into_iter().map(path).collect())
    }

    /// The part and its links, each with the name of its file.
    fn texts(&self) -> impl Iterator<Item = (String, String)> {
        let links = self.link.iter().chain(&self.peer);
        let links = links.map(|link| (format!("{}.yaml", link.link), yaml::write(link)));
        std::iter::once((format!("{}.yaml", self.part.gpu), yaml::write(&self.part))).chain(links)
    }
}
