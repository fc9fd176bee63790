//! A front as a table, as text of 80 columns and as CSV.

use super::pareto::{Front, FrontPoint, PointCriteria};
use crate::search::Criterion;
use std::fmt;

impl Front {
    /// The front as CSV: for each point its criteria, simulated and as bounds, in s, J and USD, and
    /// its description.
    pub fn to_csv(&self) -> String {
        let unit = |criterion: &Criterion| match criterion {
            Criterion::Ttft => "ttft_s",
            Criterion::Tpot => "tpot_s",
            Criterion::Energy => "energy_J_per_token",
            Criterion::Cost => "cost_USD_per_token",
        };
        let names: Vec<_> = self.criteria.iter().map(unit).collect();
        let bounds: Vec<_> = names.iter().map(|name| format!("bound_{name}")).collect();
        let mut text =
            format!("{},{},prefill_chunk,proven,beaten,placement\n", names.join(","), bounds.join(","));
        for point in &self.points {
            let values = |taken: &PointCriteria| {
                let values = self.criteria.iter().map(|&criterion| taken.value(criterion).to_string());
                values.collect::<Vec<_>>().join(",")
            };
            let FrontPoint { placement, prefill_chunk, bound, simulated, proven, beaten } = point;
            let proven = proven.map_or(String::new(), |proven| proven.to_string());
            let (simulated, bound, placement) =
                (values(simulated), values(bound), placement.replace('"', "\"\""));
            text += &format!("{simulated},{bound},{prefill_chunk},{proven},{beaten},\"{placement}\"\n");
        }
        text
    }
}

impl fmt::Display for Front {
    /// A line of at most 80 columns for each point: its simulated criteria and its description.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WIDTH: usize = 80;
        for criterion in &self.criteria {
            let name = match criterion {
                Criterion::Energy => "J/token",
                Criterion::Cost => "USD/Mtoken",
                Criterion::Ttft => "TTFT",
                Criterion::Tpot => "TPOT",
            };
            write!(f, "{name:>11} ")?;
        }
        writeln!(f, "  placement, in decode")?;
        for point in &self.points {
            let mut line = String::new();
            for &criterion in &self.criteria {
                let taken = &point.simulated;
                let value = match criterion {
                    Criterion::Ttft => taken.times.ttft.to_string(),
                    Criterion::Tpot => taken.times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string()),
                    Criterion::Energy => format!("{:.4}", taken.value(criterion)),
                    Criterion::Cost => format!("{:.4}", taken.value(criterion) * 1_000_000.0),
                };
                line += &format!("{value:>11} ");
            }
            line += if point.beaten { "* " } else { "  " };
            line += &point.placement;
            writeln!(f, "{}", line.chars().take(WIDTH).collect::<String>().trim_end())?;
        }
        if self.points.iter().any(|point| point.beaten) {
            writeln!(f, "* simulated with contention, another point is nowhere worse and somewhere better")?;
        }
        Ok(())
    }
}
