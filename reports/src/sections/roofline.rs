//! A roofline: the rate that each operator achieved, against the limits of its device and memories.

use crate::numbers::format::{byte_rate, duration, flop_rate, flop_tick, percent, plain};
use crate::page::block::{PageBlock, Plot, Table, TableCell, TableColumn};
use crate::plots::chart::{AxisScale, Chart, GuideCourse, GuideLine, PlotPoint, PlotSeries};
use hwprofiles::{Bytes, DType, Flop, Machine, Seconds};
use planner::Trace;
use scenarios::{Phase, WeightFormats};

/// All tasks of one operator in one phase on one lane.
#[derive(Debug, Clone, PartialEq)]
struct AchievedRates {
    phase: Phase,
    name: String,
    lane: String,
    flop: Flop,
    bytes: Bytes,
    time: Seconds,
}

impl AchievedRates {
    /// FLOP ÷ bytes; `None` where either is zero.
    fn intensity(&self) -> Option<f64> {
        (self.flop > Flop::ZERO && self.bytes > Bytes::ZERO).then(|| self.flop.as_f64() / self.bytes.as_f64())
    }

    fn flop_per_s(&self) -> f64 {
        self.flop.as_f64() / self.time.get()
    }

    fn bytes_per_s(&self) -> f64 {
        self.bytes.as_f64() / self.time.get()
    }
}

/// The highest rates of a lane.
#[derive(Debug, Clone, Default)]
struct Ceilings {
    /// Matrix products: name and FLOP/s.
    compute: Vec<(String, f64)>,
    /// Memories and links: name and bytes/s, the fastest first.
    bytes: Vec<(String, f64)>,
}

impl Ceilings {
    /// The limits of a device (its products, the memories it reads, the links into its memory) or
    /// of a link. Empty for an unknown lane.
    fn for_lane(machine: &Machine, lane: &str, weights: Option<WeightFormats>) -> Self {
        if let Some(link) = machine.links.iter().find(|link| link.name == lane) {
            return Self { compute: vec![], bytes: vec![(link.name.clone(), link.bandwidth.value.get())] };
        }
        let Some(id) = machine.device_named(lane) else { return Self::default() };
        let device = machine.device(id);
        let formats: Vec<DType> = match weights {
            Some(weights) => weights.distinct().filter(|&dtype| device.multiplies(dtype)).collect(),
            None => device.gemm.keys().copied().collect(),
        };
        let compute = formats.into_iter().filter_map(|dtype| {
            let best = device.peak_rate([dtype])?;
            Some((format!("{dtype} products"), best.get()))
        });
        let memories = [device.memory].into_iter().chain(device.reads.iter().copied());
        let memories =
            memories.map(|id| machine.memory(id)).map(|it| (it.name.clone(), it.bandwidth.value.get()));
        let links = machine.links.iter().filter(|link| link.to == device.memory);
        let links = links.map(|link| (link.name.clone(), link.bandwidth.value.get()));
        let mut bytes: Vec<_> = memories.chain(links).collect();
        bytes.sort_by(|a, b| b.1.total_cmp(&a.1));
        // Equal rates share one line and one label.
        let bytes =
            bytes.chunk_by(|a, b| a.1 == b.1).map(|equal| (joined_names(equal), equal[0].1)).collect();
        Self { compute: compute.collect(), bytes }
    }

    /// The achieved rate ÷ the limit for its intensity, by the fastest product and memory; `None`
    /// where a limit is unknown.
    fn roof(&self, row: &AchievedRates) -> Option<f64> {
        let bytes = self.bytes.first().map(|(_, rate)| *rate);
        let Some(intensity) = row.intensity() else { return bytes.map(|rate| row.bytes_per_s() / rate) };
        let compute = self.compute.iter().map(|(_, rate)| *rate).max_by(f64::total_cmp);
        Some(row.flop_per_s() / compute?.min(bytes? * intensity))
    }
}

/// Sums up a trace's tasks by phase, name and lane, in order of first appearance.
fn achieved(trace: &Trace) -> Vec<AchievedRates> {
    let mut rows: Vec<AchievedRates> = Vec::new();
    for event in &trace.events {
        let phase = trace.steps[event.step as usize].step.phase;
        let same =
            |row: &AchievedRates| row.phase == phase && row.name == event.name && row.lane == event.lane;
        let index = rows.iter().position(same).unwrap_or_else(|| {
            let (name, lane) = (event.name.clone(), event.lane.clone());
            let (flop, bytes, time) = (Flop::ZERO, Bytes::ZERO, Seconds::ZERO);
            rows.push(AchievedRates { phase, name, lane, flop, bytes, time });
            rows.len() - 1
        });
        rows[index].flop += event.flop;
        rows[index].bytes += event.bytes;
        rows[index].time += Seconds::from_nanos(event.end_ns - event.start_ns);
    }
    rows.retain(|row| row.time > Seconds::ZERO);
    rows.sort_by_key(|row| row.phase);
    rows
}

/// The label of ceilings at the same height.
fn joined_names(equal: &[(String, f64)]) -> String {
    match equal {
        [one, other] => format!("{}, {}", one.0, other.0),
        [one, _, rest @ ..] => format!("{} and {} more", one.0, 1 + rest.len()),
        rest => rest.iter().map(|(name, _)| name.as_str()).collect(),
    }
}

/// A chart for each device that computes, and a table of all operators. Ceilings need a known
/// machine; with `weights`, only products of those formats are drawn.
pub(crate) fn blocks(
    trace: &Trace,
    machine: Option<&Machine>,
    weights: Option<WeightFormats>,
) -> Vec<PageBlock> {
    let rows = achieved(trace);
    let mut lanes: Vec<&str> = Vec::new();
    for row in &rows {
        if !lanes.contains(&row.lane.as_str()) {
            lanes.push(&row.lane);
        }
    }
    let ceilings: Vec<_> = lanes
        .iter()
        .map(|lane| machine.map(|machine| Ceilings::for_lane(machine, lane, weights)).unwrap_or_default())
        .collect();
    let of_lane = |lane: &str| rows.iter().filter(|row| row.lane == lane).collect::<Vec<_>>();
    let charts = lanes.iter().zip(&ceilings).filter_map(|(lane, ceilings)| {
        let rows = of_lane(lane);
        let computes = rows.iter().any(|row| row.intensity().is_some());
        computes.then(|| Plot::fitting(format!("roofline-{lane}"), chart(lane, &rows, ceilings).draw()))
    });
    let words = match machine {
        Some(_) => {
            "Each operator by its FLOP per byte and its achieved rate. The limits are the sloped line \
             of the memory that it reads and the flat line of the fastest matrix products."
        }
        None => {
            "Each operator by its FLOP per byte and its achieved rate. The limits are missing because \
             this program does not know the machine of this trace: add the file of its plan to the \
             report."
        }
    };
    let plots = charts.collect();
    let table = table(&rows, |row| {
        let index = lanes.iter().position(|lane| *lane == row.lane)?;
        ceilings[index].roof(row)
    });
    vec![
        PageBlock::Heading("Roofline".to_owned()),
        PageBlock::Text(words.to_owned()),
        PageBlock::Plots(plots),
        PageBlock::Table(table),
    ]
}

fn chart(lane: &str, rows: &[&AchievedRates], ceilings: &Ceilings) -> Chart {
    let scales = [
        AxisScale::logarithmic("FLOP per byte", plain),
        AxisScale::logarithmic("FLOP per second", flop_tick),
    ];
    let mut chart = Chart::new(&format!("Operators on {lane}"), scales);
    chart.labels = true;
    for phase in [Phase::Prefill, Phase::Decode] {
        let points = rows.iter().filter(|row| row.phase == phase).filter_map(|row| {
            let (intensity, rate) = (row.intensity()?, row.flop_per_s());
            let of_roof =
                ceilings.roof(row).map_or(String::new(), |share| format!(", {} of its roof", percent(share)));
            let hover = format!(
                "{}: {phase}, {} FLOP/byte, {}{of_roof}",
                row.name,
                plain(intensity),
                flop_rate(rate)
            );
            Some(PlotPoint { at: [intensity, rate], hover })
        });
        chart.series.push(PlotSeries {
            name: phase.to_string(),
            points: points.collect(),
            line: false,
            radius: 5.5,
        });
    }
    for (name, rate) in &ceilings.compute {
        let name = format!("{name} {}", flop_rate(*rate));
        chart.guides.push(GuideLine { course: GuideCourse::Horizontal(*rate), name, counts: true });
    }
    for (name, rate) in &ceilings.bytes {
        // From far left to the highest flat line. On logarithmic axes the slope is one.
        let top = ceilings.compute.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let end = if top > 0.0 { top / rate } else { 1e6 };
        let name = format!("{name} {}", byte_rate(*rate));
        let course = GuideCourse::Between([[end * 1e-9, end * 1e-9 * rate], [end, end * rate]]);
        chart.guides.push(GuideLine { course, name, counts: false });
    }
    chart
}

fn table(rows: &[AchievedRates], roof: impl Fn(&AchievedRates) -> Option<f64>) -> Table {
    let columns = [
        TableColumn::text("phase"),
        TableColumn::name("operator"),
        TableColumn::text("lane"),
        TableColumn::number("time"),
        TableColumn::number("FLOP/byte"),
        TableColumn::number("computed"),
        TableColumn::number("moved"),
        TableColumn::number("of its roof"),
    ];
    let rows = rows.iter().map(|row| {
        let dash = || "–".to_owned();
        let cells = [
            row.phase.to_string(),
            row.name.clone(),
            row.lane.clone(),
            duration(row.time),
            row.intensity().map_or_else(dash, plain),
            if row.flop > Flop::ZERO { flop_rate(row.flop_per_s()) } else { dash() },
            if row.bytes > Bytes::ZERO { byte_rate(row.bytes_per_s()) } else { dash() },
            roof(row).filter(|_| !row.name.starts_with("hop ")).map_or_else(dash, percent),
        ];
        cells.map(TableCell::from).to_vec()
    });
    let caption =
        "Operators and transfers of all steps. Transfers are compared with the fastest memory only.";
    Table {
        label: "Achieved rates of operators".to_owned(),
        caption: caption.to_owned(),
        columns: columns.to_vec(),
        rows: rows.collect(),
    }
}
