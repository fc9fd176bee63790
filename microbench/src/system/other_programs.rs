//! What other programs take of the processors while something is measured.

/// Other programs that take this share of all processors disturb what is measured.
const BUSY: f64 = 0.1;

/// Does `work`, and finds what other programs took meanwhile: `None` where the system does not say.
pub fn beside_other_programs<T>(work: impl FnOnce() -> T) -> (T, Option<OtherPrograms>) {
    let (before, done) = (ProcessorTicks::read(), work());
    let others = before.zip(ProcessorTicks::read()).map(|(before, now)| now.others_since(before));
    (done, others)
}

/// Clock ticks of all processors since the system began.
#[derive(Debug, Clone, Copy)]
struct ProcessorTicks {
    all: u64,
    busy: u64,
    /// Those of this process and of the ones that it waited for.
    own: u64,
    processors: f64,
}

impl ProcessorTicks {
    /// Those of this machine; `None` where the system does not tell.
    fn read() -> Option<Self> {
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
    fn others_since(self, before: Self) -> OtherPrograms {
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
    pub busy: f64,
    /// All processors.
    pub processors: f64,
}

impl OtherPrograms {
    /// Whether they disturb what is measured.
    pub fn disturb(self) -> bool {
        self.busy > BUSY * self.processors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
