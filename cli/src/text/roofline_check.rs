//! Kernels under a machine's roofline, as a table.

use fulcrum::{CheckedKernel, RooflineCheck};
use hwprofiles::statistics::{magnitudes, median, relative_error};
use reports::{Pair, RooflineMark};
use serde_json::{Value, json};
use std::fmt::Write;

/// Predicted ÷ measured − 1.
fn error(kernel: &CheckedKernel) -> f64 {
    relative_error(kernel.predicted.get(), kernel.measured.get()).expect("a measured time is above zero")
}

/// The achieved share of the roof.
fn share(kernel: &CheckedKernel) -> f64 {
    kernel.roof.get() / kernel.measured.get()
}

/// The sizes of the errors: their median and the largest.
fn errors(check: &RooflineCheck) -> [f64; 2] {
    let sizes = magnitudes(&check.kernels.iter().map(error).collect::<Vec<_>>());
    [median(&sizes).unwrap_or(0.0), sizes.into_iter().fold(0.0, f64::max)]
}

/// A table of at most 80 columns.
pub fn table(check: &RooflineCheck) -> String {
    let mut text = format!("{}, f32 on all cores: {} and {}\n\n", check.host, check.peak, check.bandwidth);
    let mut line = |cells: [&str; 6]| {
        let [kernel, intensity, predicted, measured, error, share] = cells;
        let line = format!("{kernel:<24} {intensity:>9} {predicted:>9} {measured:>9} {error:>9} {share:>8}");
        writeln!(text, "{line}").expect("a String takes every line");
    };
    line(["kernel", "FLOP/byte", "predicted", "measured", "error", "of roof"]);
    for kernel in &check.kernels {
        line([
            &kernel.name,
            &format!("{:.3}", (kernel.flop / kernel.bytes).get()),
            &kernel.predicted.to_string(),
            &kernel.measured.to_string(),
            &format!("{:+.1} %", 100.0 * error(kernel)),
            &format!("{:.0} %", 100.0 * share(kernel)),
        ]);
    }
    let spreads: Vec<f64> = check.kernels.iter().map(|kernel| kernel.spread).collect();
    let [middle, largest] = errors(check).map(|error| 100.0 * error);
    let spread = 100.0 * median(&spreads).unwrap_or(0.0);
    text + &format!(
        "\nmedian error {middle:.1} %, largest {largest:.1} %; the measured times spread by {spread:.0} %\n"
    )
}

/// The same for machines.
pub fn document(check: &RooflineCheck) -> Value {
    let kernel = |kernel: &CheckedKernel| {
        json!({
            "name": kernel.name,
            "flop": kernel.flop.as_f64(),
            "bytes": kernel.bytes,
            "roof_s": kernel.roof.get(),
            "predicted_s": kernel.predicted.get(),
            "measured_s": kernel.measured.get(),
            "spread": kernel.spread,
            "error": error(kernel),
            "share_of_roof": share(kernel),
        })
    };
    json!({
        "host": check.host,
        "peak": check.peak,
        "bandwidth": check.bandwidth,
        "median_error": errors(check)[0],
        "kernels": check.kernels.iter().map(kernel).collect::<Vec<_>>(),
    })
}

/// The kernels under the roofline, as an SVG file.
pub fn plot(check: &RooflineCheck) -> String {
    let mark = |kernel: &CheckedKernel| RooflineMark {
        name: kernel.name.clone(),
        flop: kernel.flop,
        bytes: kernel.bytes,
        time: Pair { predicted: kernel.predicted, measured: kernel.measured },
    };
    let marks: Vec<_> = check.kernels.iter().map(mark).collect();
    let heading = format!("Six kernels in f32 on {}", check.host);
    reports::roofline(&heading, check.peak, check.bandwidth, &marks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::{Bytes, BytesPerSec, Flop, FlopPerSec, Seconds};

    #[test]
    fn errors_are_against_what_was_measured_and_shares_against_the_roof() {
        let kernel = |name: &str, predicted: f64| CheckedKernel {
            name: name.to_owned(),
            flop: Flop::new(2_000_000),
            bytes: Bytes::new(12_000_000),
            roof: Seconds::new(0.5e-3),
            predicted: Seconds::new(predicted),
            measured: Seconds::new(1e-3),
            spread: 0.04,
        };
        let check = RooflineCheck {
            host: "here".to_owned(),
            peak: FlopPerSec::new(2e11),
            bandwidth: BytesPerSec::new(24e9),
            kernels: vec![kernel("AXPY", 0.9e-3), kernel("SpMV", 1.3e-3), kernel("CG", 0.8e-3)],
        };
        let text = table(&check);
        assert!(text.contains("median error 20.0 %, largest 30.0 %"), "{text}");
        assert!(text.contains("-10.0 %     50 %") && text.contains("0.167"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(document(&check)["kernels"][1]["share_of_roof"], 0.5);
        assert!(plot(&check).contains("SpMV: 0.1667 FLOP/byte"));
    }
}
