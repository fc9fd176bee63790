//! Kernels under a roofline: the measured and the predicted rate of each, by its arithmetic
//! intensity.

use super::chart::{AxisScale, Chart, GuideCourse, GuideLine, PlotPoint, PlotSeries};
use crate::numbers::format::{byte_rate, flop_rate, flop_tick, plain, signed_percent};
use crate::numbers::pair::Pair;
use hwprofiles::{Bytes, BytesPerSec, Flop, FlopPerSec, Seconds};

/// A kernel under a roofline.
#[derive(Debug, Clone, PartialEq)]
pub struct RooflineMark {
    /// Its name.
    pub name: String,
    /// What it computes, above zero.
    pub flop: Flop,
    /// What it moves, above zero.
    pub bytes: Bytes,
    /// Its predicted and its measured time, above zero.
    pub time: Pair,
}

/// Plots kernels under a flat roof, `peak`, and a sloped one, `bandwidth`, as a self-contained SVG
/// file.
pub fn roofline(heading: &str, peak: FlopPerSec, bandwidth: BytesPerSec, marks: &[RooflineMark]) -> String {
    let scales = [
        AxisScale::logarithmic("FLOP per byte", plain),
        AxisScale::logarithmic("FLOP per second", flop_tick),
    ];
    let mut chart = Chart::new(heading, scales);
    chart.labels = true;
    chart.series = vec![
        series("measured", marks, |time| time.measured, 5.5),
        series("predicted", marks, |time| time.predicted, 4.0),
    ];
    let name = format!("f32 arithmetic {}", flop_rate(peak.get()));
    chart.guides.push(GuideLine { course: GuideCourse::Horizontal(peak.get()), name, counts: true });
    let ridge = peak.get() / bandwidth.get();
    let name = format!("memory {}", byte_rate(bandwidth.get()));
    // On logarithmic axes the slope is one.
    let course = GuideCourse::Between([[ridge * 1e-9, peak.get() * 1e-9], [ridge, peak.get()]]);
    chart.guides.push(GuideLine { course, name, counts: false });
    chart.draw().standalone()
}

fn series(name: &str, marks: &[RooflineMark], time: fn(&Pair) -> Seconds, radius: f64) -> PlotSeries {
    let point = |mark: &RooflineMark| {
        let intensity = (mark.flop / mark.bytes).get();
        let rate = (mark.flop / time(&mark.time)).get();
        let (plain, error) = (plain(intensity), signed_percent(mark.time.error()));
        let hover = format!("{}: {plain} FLOP/byte, {} {name}, error {error}", mark.name, flop_rate(rate));
        PlotPoint { at: [intensity, rate], hover }
    };
    PlotSeries { name: name.to_owned(), points: marks.iter().map(point).collect(), line: false, radius }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_is_marked_twice_under_both_roofs() {
        let mark = |name: &str, flop: u128, bytes: u64| {
            let time = Pair { predicted: Seconds::new(1e-3), measured: Seconds::new(2e-3) };
            RooflineMark { name: name.to_owned(), flop: Flop::new(flop), bytes: Bytes::new(bytes), time }
        };
        let marks = [mark("AXPY", 2_000_000, 12_000_000), mark("GEMM", 90_000_000, 1_000_000)];
        let svg = roofline("here", FlopPerSec::new(2e11), BytesPerSec::new(2e10), &marks);
        for text in [
            "AXPY: 0.1667 FLOP/byte, 1.00 GFLOP/s measured, error -50.0 %",
            "AXPY: 0.1667 FLOP/byte, 2.00 GFLOP/s predicted, error -50.0 %",
            "GEMM: 90 FLOP/byte, 45.0 GFLOP/s measured",
            "f32 arithmetic 200 GFLOP/s",
            "memory 20.0 GB/s",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }
}
