//! A mixture of experts: which experts tokens go to, and how many experts a step touches.
//!
//! Every token goes to `per_token` of `count` experts. Experts are in the order of their
//! popularity, the most popular first. A device's share is a range of experts, so a division in two
//! gives a hot part and a cold part. Tokens choose independently of each other. Traffic is the mean
//! over their choices, or one random draw of them.

use serde::{Serialize, Serializer};
use std::ops::Range;
use std::sync::Arc;

/// A mixture of experts in place of the feed-forward network, or beside it as the shared expert.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Experts {
    /// Experts of one layer.
    pub count: u64,
    /// Experts that each token goes to.
    pub per_token: u64,
    /// Width of one expert.
    pub intermediate: u64,
    /// Width of the shared expert, which every token goes to; 0 if there is none.
    pub shared: u64,
    /// Width of the vectors that the routed experts read and write, if it is not the residual's: it
    /// is projected down in front of them and up behind them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent: Option<u64>,
    /// Whether the shared expert's output is multiplied by a gate of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared_gate: bool,
    /// Whether the router adds a bias to its scores.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub router_bias: bool,
    /// Whether the weights of a token's experts are scaled so that they add up to 1.
    #[serde(skip_serializing_if = "is_true")]
    pub normalised: bool,
    /// The function that makes scores of the router's outputs.
    #[serde(skip_serializing_if = "RouterScoring::is_softmax")]
    pub scoring: RouterScoring,
    /// Groups of equally many experts; a token first chooses among the groups. 1 if there are none.
    #[serde(skip_serializing_if = "is_one")]
    pub groups: u64,
    /// Groups that a token's experts are in.
    #[serde(skip_serializing_if = "is_one")]
    pub groups_per_token: u64,
    /// Factor of the weights of a token's experts.
    #[serde(skip_serializing_if = "is_unit")]
    pub weight_scale: f64,
    /// How unequal the experts' popularity is.
    #[serde(rename = "skew")]
    popularity: Popularity,
}

/// How a router's outputs become scores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RouterScoring {
    /// A softmax over all experts. A group of experts counts as its best one.
    #[default]
    Softmax,
    /// A sigmoid of each output. The router's bias corrects the choice alone, not the weights, and
    /// a group of experts counts as the sum of its two best.
    Sigmoid,
    /// A sigmoid of each output, which multiplies the expert's input instead of its output.
    SigmoidOfInput,
}

impl RouterScoring {
    fn is_softmax(&self) -> bool {
        *self == Self::Softmax
    }
}

/// Zipf's law: expert e, counted from 0, has the weight (e + 1)^−skew; a skew of 0 is uniform. A
/// token chooses an expert at most once, so a chance is at most 1; what exceeds 1 goes to the other
/// experts in proportion to their weights.
#[derive(Debug, Clone, PartialEq)]
struct Popularity {
    skew: f64,
    /// At each index, the sum of the chances of all experts before it: `count` + 1 sums. Empty if
    /// all chances are equal.
    chosen: Arc<[f64]>,
    /// ln(1 − chance) of each expert.
    missed: Arc<[f64]>,
}

/// True is the common case and is not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_true(value: &bool) -> bool {
    *value
}

/// One is the common case and is not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
pub(crate) fn is_one(value: &u64) -> bool {
    *value == 1
}

/// A factor of one is the common case and is not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_unit(value: &f64) -> bool {
    *value == 1.0
}

impl Serialize for Popularity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.skew.serialize(serializer)
    }
}

/// What a range of experts has to do in a step: a mean, or one random draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertTraffic {
    /// Pairs of a token and one of its experts.
    pub pairs: f64,
    /// Experts that at least one token goes to; their weights are read.
    pub touched: f64,
}

impl Experts {
    /// `count` experts of width `intermediate` in every layer, `per_token` of them for each token,
    /// all equally popular, with weights that add up to 1.
    ///
    /// # Panics
    /// `per_token` is not from 1 to `count`.
    pub fn new(count: u64, per_token: u64, intermediate: u64) -> Self {
        assert!((1..=count).contains(&per_token), "{per_token} of {count} experts");
        let none: Arc<[f64]> = Arc::default();
        let popularity = Popularity { skew: 0.0, chosen: none.clone(), missed: none };
        Self {
            count,
            per_token,
            intermediate,
            shared: 0,
            latent: None,
            shared_gate: false,
            router_bias: false,
            normalised: true,
            scoring: RouterScoring::Softmax,
            groups: 1,
            groups_per_token: 1,
            weight_scale: 1.0,
            popularity,
        }
    }

    /// The same number of experts with other widths.
    pub(crate) fn with_widths(self, intermediate: u64, shared: u64) -> Self {
        Self { intermediate, shared, ..self }
    }

    /// Whether a token goes to the experts with the largest outputs of the router, with a softmax
    /// of these outputs as weights: no groups, no correction, no factor.
    pub fn has_plain_router(&self) -> bool {
        self.scoring == RouterScoring::Softmax && self.groups == 1 && self.weight_scale == 1.0
    }

    /// The exponent of Zipf's law by which tokens choose experts.
    pub fn skew(&self) -> f64 {
        self.popularity.skew
    }

    /// The same experts, chosen by Zipf's law with this exponent, which must be at least 0.
    #[must_use]
    pub fn with_skew(self, skew: f64) -> Self {
        if skew == 0.0 {
            let uniform = Self::new(self.count, self.per_token, self.intermediate);
            return Self { popularity: uniform.popularity, ..self };
        }
        let chances = chances(self.count, self.per_token, skew);
        let mut sum = 0.0;
        let sums = chances.iter().map(|chance| {
            sum += chance;
            sum
        });
        let chosen = std::iter::once(0.0).chain(sums).collect();
        let missed = chances.iter().map(|chance| (-chance).ln_1p()).collect();
        Self { popularity: Popularity { skew, chosen, missed }, ..self }
    }

    /// The chance that a token chooses the expert. The chances of all experts add up to
    /// [`Experts::per_token`].
    pub fn chance(&self, expert: u64) -> f64 {
        match &self.popularity.chosen[..] {
            [] => self.per_token as f64 / self.count as f64,
            sums => sums[expert as usize + 1] - sums[expert as usize],
        }
    }

    /// The mean traffic of `tokens` tokens on the experts in `range`. With p(e), the chance that a
    /// token chooses expert e: pairs are Σ tokens · p(e), touched experts Σ 1 − (1 − p(e))^tokens.
    /// Takes constant time if all experts are equally popular.
    pub fn traffic(&self, range: &Range<u64>, tokens: u64) -> ExpertTraffic {
        let range = range.start.min(self.count)..range.end.min(self.count);
        if tokens == 0 || range.is_empty() {
            return ExpertTraffic { pairs: 0.0, touched: 0.0 };
        }
        let tokens = tokens as f64;
        let touched = |missed: f64| -(tokens * missed).exp_m1();
        if self.popularity.chosen.is_empty() {
            let (experts, chance) =
                ((range.end - range.start) as f64, self.per_token as f64 / self.count as f64);
            return ExpertTraffic {
                pairs: tokens * chance * experts,
                touched: experts * touched((-chance).ln_1p()),
            };
        }
        let Popularity { chosen, missed, .. } = &self.popularity;
        let range = range.start as usize..range.end as usize;
        ExpertTraffic {
            pairs: tokens * (chosen[range.end] - chosen[range.start]),
            touched: missed[range].iter().map(|&missed| touched(missed)).sum(),
        }
    }
}

/// The mean of the largest of 1, 2, 4, … independent standard normal numbers (Harter, "Expected
/// values of normal order statistics", Biometrika 1961).
const LARGEST_NORMAL: [f64; 11] =
    [0.0, 0.5642, 1.0294, 1.4236, 1.7660, 2.0697, 2.3437, 2.5936, 2.8245, 3.0395, 3.2414];

impl Experts {
    /// The mean share of the busiest of `ranks` ranks that have `count` ÷ `ranks` experts each,
    /// where `traffic` goes to all experts and these are equally popular.
    ///
    /// Tokens choose independently, so the numbers of pairs and of touched experts of a rank vary
    /// about their means of 1 ÷ `ranks`: pairs with the variance of draws without replacement, mean
    /// · (count − per_token) ÷ (count − 1); touched experts with mean · (1 − touched ÷ count) ·
    /// count ÷ (count − 1). The largest of `ranks` such numbers, taken as normal, whose sum is
    /// fixed exceeds the mean by the largest of as many independent ones.
    pub fn busiest_share(&self, traffic: ExpertTraffic, ranks: u64) -> ExpertTraffic {
        if ranks <= 1 || self.count <= 1 {
            return traffic;
        }
        let (count, of) = (self.count as f64, ranks as f64);
        let power = of.log2().min((LARGEST_NORMAL.len() - 1) as f64);
        let below = LARGEST_NORMAL[power.floor() as usize];
        let above = LARGEST_NORMAL[power.ceil() as usize];
        let largest = below + (above - below) * power.fract();
        let share = |whole: f64, missing: f64, most: f64| {
            let mean = whole / of;
            (mean + largest * (mean * missing.max(0.0)).sqrt()).min(most)
        };
        let free = (count - self.per_token as f64) / (count - 1.0);
        let untouched = (count - traffic.touched) / (count - 1.0);
        let touched = share(traffic.touched, untouched, traffic.touched.min(count / of));
        ExpertTraffic { pairs: share(traffic.pairs, free, traffic.pairs).max(touched), touched }
    }
}

/// The chance of each expert; all chances add up to `per_token`.
fn chances(count: u64, per_token: u64, skew: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-skew)).collect();
    // At each index, the sum of the weights from there on; small weights are added first.
    let mut rest: Vec<f64> = weights.clone();
    for index in (1..rest.len()).rev() {
        rest[index - 1] += rest[index];
    }
    // The most popular experts, whose chance would exceed 1, are always chosen.
    let places = |always: usize| per_token as f64 - always as f64;
    let sure = |&always: &usize| {
        always >= weights.len() || places(always) <= 0.0 || places(always) * weights[always] <= rest[always]
    };
    let always = (0..=weights.len()).find(sure).unwrap_or(weights.len());
    let chance = |expert: usize| match expert < always {
        true => 1.0,
        false => (places(always) * weights[expert] / rest[always]).clamp(0.0, 1.0),
    };
    (0..weights.len()).map(chance).collect()
}
