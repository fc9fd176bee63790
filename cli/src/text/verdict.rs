//! What a quickstart found, in words, and what to do next.

use reports::Validation;
use std::path::Path;

/// Other programs that take this share of all processors disturb what is measured.
const BUSY: f64 = 0.1;

/// Differences below this share are not told apart.
const ALIKE: f64 = 0.03;

/// Clock ticks of all processors since the system began.
#[derive(Debug, Clone, Copy)]
pub struct ProcessorTicks {
    all: u64,
    busy: u64,
    /// Those of this process and of the ones that it waited for.
    own: u64,
    processors: f64,
}

impl ProcessorTicks {
    /// Those of this machine; `None` where the system does not tell.
    pub fn read() -> Option<Self> {
        let [all, own] = ["/proc/stat", "/proc/self/stat"].map(std::fs::read_to_string);
        Self::from_text(&all.ok()?, &own.ok()?)
    }

    /// From the texts of `/proc/stat` and `/proc/self/stat`, as proc(5) describes them.
    fn from_text(all: &str, own: &str) -> Option<Self> {
        const IDLE: [usize; 2] = [3, 4];
        // The last two repeat what user and nice contain.
        const COUNTED: usize = 8;
        let ticks: Vec<u64> = all
            .lines()
            .next()?
            .split_whitespace()
            .skip(1)
            .take(COUNTED)
            .map_while(|it| it.parse().ok())
            .collect();
        let idle: u64 = IDLE.iter().map(|&at| ticks.get(at)).sum::<Option<u64>>()?;
        let is_one = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
        // The name of the program may hold spaces and parentheses; the state follows.
        let fields = own.rsplit_once(')')?.1.split_whitespace();
        let own: Vec<u64> = fields.skip(11).take(4).map_while(|it| it.parse().ok()).collect();
        let total = ticks.iter().sum::<u64>();
        (own.len() == 4).then(|| Self {
            all: total,
            busy: total - idle,
            own: own.iter().sum(),
            processors: all.lines().filter(is_one).count() as f64,
        })
    }

    /// How many processors other programs kept busy from `before` until now; of a virtual machine
    /// also those of its host's other guests.
    pub fn others_since(self, before: Self) -> OtherPrograms {
        let [all, busy, own] = [(self.all, before.all), (self.busy, before.busy), (self.own, before.own)]
            .map(|(now, before)| now.saturating_sub(before) as f64);
        let busy = (busy - own).max(0.0) * self.processors / all.max(1.0);
        OtherPrograms { busy, processors: self.processors }
    }
}

/// What other programs took while something was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OtherPrograms {
    /// Processors that they kept busy, on average.
    busy: f64,
    processors: f64,
}

impl OtherPrograms {
    fn disturb(self) -> bool {
        self.busy > BUSY * self.processors
    }
}

/// The verdict: how good the prediction was, whether planning was worth it, and what comes next.
pub fn quickstart(validation: &Validation, others: Option<OtherPrograms>, page: &Path) -> String {
    let mut text = String::new();
    let summary = validation.summary();
    let errors = [("TTFT", summary.ttft), ("TPOT", summary.tpot)];
    let errors = errors.into_iter().filter_map(|(name, errors)| Some((name, errors?)));
    let errors: Vec<_> =
        errors.map(|(name, errors)| format!("{name} by {:.1} %", errors.median * 100.0)).collect();
    if !errors.is_empty() {
        let count = validation.configurations.len();
        text += &format!("Prediction: off in {} (median of {count} runs).\n", errors.join(", "));
    }
    let ratios = validation.rule_comparisons().iter().filter_map(|load| load.ratio()).collect::<Vec<_>>();
    if !ratios.is_empty() {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        text += &format!("Plan: {} (mean of {} loads).\n", against_rules(mean), ratios.len());
    }
    if let Some(others) = others.filter(|others| others.disturb()) {
        text += &format!(
            "Other programs kept {:.1} of {:.0} cores busy meanwhile: read errors as upper bounds.\n",
            others.busy, others.processors
        );
    }
    let page = page.display();
    text + &format!("Next: open {page}; `fulcrum advise` says which models run here.\n")
}

/// The planned placement's time as a share of the best rule's, in words.
fn against_rules(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 1.0 - ALIKE => {
            format!("the planned placement is {:.0} % faster than the best rule", (1.0 / ratio - 1.0) * 100.0)
        }
        ratio if ratio <= 1.0 + ALIKE => "the planned placement is as fast as the best rule".to_owned(),
        ratio => format!("the planned placement is {:.0} % slower than the best rule", (ratio - 1.0) * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_times_is_told_as_a_difference_of_speed() {
        assert!(against_rules(0.5).contains("100 % faster"));
        assert!(against_rules(0.99).contains("as fast"));
        assert!(against_rules(1.1).contains("10 % slower"));
    }

    #[test]
    fn other_programs_are_what_is_busy_and_not_ours() {
        let ticks = |user, idle, own| {
            let all = format!("cpu  {user} 0 10 {idle} 5 0 0 1 0 0\ncpu0 1 0 0\ncpu1 1 0 0\nintr 1\n");
            let own = format!("7 (a ) b) S 1 1 1 0 -1 0 0 0 0 0 {own} 0 2 0 20 0 1 0 1");
            ProcessorTicks::from_text(&all, &own).expect("both are right")
        };
        // A thousand ticks on two processors: ours took 500 of 700 that were busy.
        let others = ticks(800, 400, 600).others_since(ticks(100, 100, 100));
        assert_eq!(others, OtherPrograms { busy: 0.4, processors: 2.0 });
        assert!(others.disturb());
        assert!(!ticks(650, 450, 600).others_since(ticks(100, 100, 100)).disturb());
        assert!(ProcessorTicks::from_text("cpu  1 2", "7 (x) S 1").is_none());
        assert!(cfg!(not(target_os = "linux")) || ProcessorTicks::read().is_some());
    }
}
