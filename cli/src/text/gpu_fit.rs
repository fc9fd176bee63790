//! A GPU's fitted rates in words and as JSON.

use fulcrum::FittedGpu;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The fit in words.
pub fn to_text(fitted: &FittedGpu) -> String {
    let counts: Vec<_> = fitted.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let mut text = format!("{}: {}\n", fitted.part.gpu, counts.join(", "));
    for (dtype, rates) in &fitted.part.gemm {
        let Some(surface) = rates.surface() else { continue };
        let value = |name| surface.parameters().find(|(it, ..)| *it == name).map(|(_, value, _)| value);
        let launch = value("launch").map(|it| format!("; at least {:.2} us", it * 1e6));
        let share =
            value("bandwidth_share").map(|it| format!("; {:.0} % of the bandwidth", it.min(1.0) * 100.0));
        let details = launch.into_iter().chain(share).collect::<String>();
        text += &format!("  {dtype} products: 80 % within ±{:.1} %{details}\n", surface.spread() * 100.0);
    }
    if let Some(link) = &fitted.link {
        text += &format!(
            "  link: {} + bytes / {} to the device, {} to the host\n",
            link.latency.value, link.to_device.value, link.to_host.value
        );
    }
    if let Some(time) = &fitted.part.kernel {
        text += &format!("  a small kernel: {}\n", time.value);
    }
    if let Some(sums) = fitted.peer.as_ref().and_then(|peer| peer.all_reduce.as_ref()) {
        text += &format!("  all-reduce: {} a step + bytes / {}\n", sums.step.value, sums.bandwidth.value);
    }
    match &fitted.errors {
        Some(errors) => {
            text + "each fifth of the points left out and predicted from the rest:\n" + &errors.to_text()
        }
        None => text + "too few points to leave some out and see how far off the fit is\n",
    }
}

/// The fit as JSON.
pub fn to_json(fitted: &FittedGpu) -> Value {
    let surfaces = fitted.part.gemm.iter().filter_map(|(dtype, rates)| Some((dtype, rates.surface()?)));
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
        "gpu": fitted.part.gpu,
        "points": fitted.counts,
        "products": products,
        "link": fitted.link,
        "peer": fitted.peer,
        "kernel": fitted.part.kernel,
        "left_out": fitted.errors,
    })
}
