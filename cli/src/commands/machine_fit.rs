//! `fulcrum machine fit POINTS.csv…`

use crate::exit::{Failure, Outcome, Sort};
use crate::terminal::{out, outln};
use crate::{inputs, terminal};
use anyhow::anyhow;
use hwprofiles::{
    DevicePoints, GpuPart, LinkPart, MeasuredPoints, MemoryId, Profile, Provenance, plain_name,
    write_atomically, yaml,
};
use reports::{OperationErrors, OperationSummary};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Fit a GPU's rates to measured points.
///
/// The columns of a file tell what was measured: products (dtype,m,n,k,latency_us), attention (phase,batch,
/// new_tokens,past_tokens,heads,kv_heads,head_dim,latency_us), its memory (stream,bytes,gb_per_s: read or copy), its
/// link (direction,memory,bytes,latency_us: h2d, d2h or both; pinned or pageable). A column gpu says of which GPU.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// CSV files of points.
    #[arg(required = true)]
    points: Vec<PathBuf>,
    /// The GPU, a shipped one or a file with its peak rates and bandwidth; without it, the one of the column gpu.
    #[arg(long, value_name = "PART")]
    gpu: Option<String>,
    /// Only the points whose column gpu says this.
    #[arg(long, value_name = "GPU")]
    only: Option<String>,
    /// Where to write the GPU's file; a folder where there are several, or a link. Without it nothing is written.
    #[arg(short, long)]
    out: Option<PathBuf>,
}

/// What was fitted of one device.
struct Fitted {
    part: GpuPart,
    link: Option<LinkPart>,
    counts: BTreeMap<String, usize>,
    /// Of points that were left out of the fit and predicted; absent where there are too few.
    errors: Option<OperationSummary>,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let mut points = MeasuredPoints::default();
    for path in &arguments.points {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| anyhow!("{name}: cannot be read: {error}")).or_input()?;
        points.read(BufReader::new(file), &name).or_input()?;
    }
    let devices = chosen(&points, &arguments)?;
    let parts: Vec<_> = devices.iter().map(|(name, _)| base(name, &arguments)).collect::<Outcome<_>>()?;
    let mut fitted = Vec::new();
    for ((_, points), part) in devices.iter().zip(&parts) {
        fitted.push(fit(part, points, &arguments.points)?);
    }
    let written = write(&fitted, arguments.out.as_deref())?;
    if json {
        let all: Vec<_> = fitted.iter().map(Fitted::to_json).collect();
        outln!("{}", serde_json::to_string_pretty(&json!({"fitted": all, "written": written})).or_failed()?);
        return Ok(());
    }
    for it in &fitted {
        out!("{}", it.to_text());
    }
    written.iter().for_each(|path| outln!("written to {}", path.display()));
    Ok(())
}

/// The devices whose points are wanted, and those.
fn chosen<'a>(
    points: &'a MeasuredPoints,
    arguments: &Arguments,
) -> Outcome<Vec<(&'a str, &'a DevicePoints)>> {
    let only = arguments.only.as_deref().map(plain_name);
    let devices: Vec<_> =
        points.devices().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)).collect();
    let names = || points.devices().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    match (&arguments.gpu, &devices[..]) {
        (_, []) => {
            let only = only.unwrap_or_default();
            Err(Failure::Input(anyhow!("--only {only}: there are no such points, but points of {}", names())))
        }
        (Some(gpu), [_, _, ..]) => {
            let message = format!("the points are of {}: choose those of '{gpu}' with --only", names());
            Err(Failure::Input(anyhow!(message)))
        }
        (Some(gpu), [(name, _)]) if only.is_none() && !name.is_empty() && *name != plain_name(gpu) => {
            let message = format!(
                "the points are of '{name}', not of '{gpu}': say `--only {name}` to use them all the same"
            );
            Err(Failure::Input(anyhow!(message)))
        }
        (None, devices) if devices.iter().any(|(name, _)| name.is_empty()) => {
            let message = "the points do not say of which GPU they are: say `--gpu h100-sxm` (`fulcrum machine \
                           list` names those), or `--gpu FILE`, or give them a column gpu";
            Err(Failure::Input(anyhow!(message)))
        }
        _ => Ok(devices),
    }
}

/// The part whose datasheet the fit starts from.
fn base(name: &str, arguments: &Arguments) -> Outcome<GpuPart> {
    let name = arguments.gpu.as_deref().unwrap_or(name);
    let found = inputs::library().profile(name).map_err(|error| {
        let hint = "for another GPU write a file with its peak rates, bandwidth, multiprocessors and L2 (as those \
                    of `fulcrum machine show h100-sxm`) and name it with --gpu";
        anyhow!("{error}; {hint}")
    });
    match found.or_input()? {
        Profile::Gpu(part) => Ok(*part),
        other => Err(Failure::Input(anyhow!("'{name}' is {}, but a GPU is wanted here", other.kind()))),
    }
}

fn fit(part: &GpuPart, points: &DevicePoints, files: &[PathBuf]) -> Outcome<Fitted> {
    let names: Vec<_> =
        files.iter().filter_map(|path| path.file_name()).map(|it| it.to_string_lossy()).collect();
    let command = format!("fulcrum machine fit {}", names.join(" "));
    let source = Provenance::Measured { date: terminal::today(), command, spread: points.spread() };
    let link = LinkPart::fitted(&format!("{}-link", part.gpu), &points.transfers(), &source).or_input()?;
    let mut counts = BTreeMap::new();
    for (operation, _) in points.operations() {
        *counts.entry(operation.kind()).or_default() += 1;
    }
    let errors = left_out(part, points, &source)?;
    Ok(Fitted { part: part.fitted(points, &source).or_input()?, link, counts, errors })
}

/// How far each point lies from what a fit to the others predicts for it: a fifth is left out in turn.
fn left_out(part: &GpuPart, points: &DevicePoints, source: &Provenance) -> Outcome<Option<OperationSummary>> {
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

/// Writes what was fitted, and says where.
fn write(fitted: &[Fitted], out: Option<&Path>) -> Outcome<Vec<PathBuf>> {
    let Some(out) = out else { return Ok(Vec::new()) };
    let is_file = out.extension().is_some_and(|it| it == "yaml" || it == "yml") && !out.is_dir();
    let mut texts = Vec::new();
    for it in fitted {
        texts.push((format!("{}.yaml", it.part.gpu), yaml::write(&it.part)));
        texts.extend(it.link.as_ref().map(|link| (format!("{}.yaml", link.link), yaml::write(link))));
    }
    if is_file && texts.len() > 1 {
        let names = texts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let message = format!("{} is one file, but there are {names}: name a folder", out.display());
        return Err(Failure::Input(anyhow!(message)));
    }
    let mut written = Vec::new();
    for (name, text) in texts {
        let path = if is_file { out.to_owned() } else { out.join(name) };
        write_atomically(&path, text).or_failed()?;
        written.push(path);
    }
    Ok(written)
}

impl Fitted {
    fn to_text(&self) -> String {
        let counts: Vec<_> = self.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let mut text = format!("{}: {}\n", self.part.gpu, counts.join(", "));
        for (dtype, rates) in &self.part.gemm {
            let Some(surface) = rates.surface() else { continue };
            let value = |name| surface.parameters().find(|(it, ..)| *it == name).map(|(_, value, _)| value);
            let launch = value("launch").map(|it| format!("; at least {:.2} us", it * 1e6));
            let share =
                value("bandwidth_share").map(|it| format!("; {:.0} % of the bandwidth", it.min(1.0) * 100.0));
            let said = launch.into_iter().chain(share).collect::<String>();
            text += &format!("  {dtype} products: 80 % within ±{:.1} %{said}\n", surface.spread() * 100.0);
        }
        if let Some(link) = &self.link {
            text += &format!(
                "  link: {} + bytes / {} to the device, {} to the host\n",
                link.latency.value, link.to_device.value, link.to_host.value
            );
        }
        match &self.errors {
            Some(errors) => {
                text + "each fifth of the points left out and predicted from the rest:\n" + &errors.to_text()
            }
            None => text + "too few points to leave some out and see how far off the fit is\n",
        }
    }

    fn to_json(&self) -> Value {
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
            "left_out": self.errors,
        })
    }
}
