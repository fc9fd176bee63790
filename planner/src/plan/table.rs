//! The table document: plans for many batches and prompt lengths whose weights stay in the same
//! memories.

use crate::cost::CostModel;
use crate::placement::{LayerGroup, NamedSlices, Pipelining, Placement, PlanError, named, placement_of};
use crate::plan::document::{check_fit, fingerprint, is_default};
use crate::plan::identity::{Identity, PlanOrigin, check_identity};
use crate::program::{PhaseTimes, RunExtent};

use hwprofiles::{FileError, Machine, Ratio, Seconds, yaml};
use scenarios::{Costs, Formats, Model, Objective, Slo, Workload};
use serde::{Deserialize, Serialize};

/// Version of the document format.
pub const TABLE_VERSION: u32 = 1;

/// A placement with names. All placements of a table have the default number of staging slots and
/// one micro-batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedPlacement {
    /// The token table.
    pub embed: NamedSlices,
    /// The layers, first to last.
    pub layers: Vec<LayerGroup>,
    /// The head.
    pub head: NamedSlices,
}

/// The plan for one batch and prompt length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellPlan {
    /// Number of sequences.
    pub batch: u64,
    /// Prompt tokens of each sequence.
    pub prompt_tokens: u64,
    /// Weight of this cell among all cells.
    pub weight: Ratio,
    /// Tokens per sequence in one prefill step.
    pub prefill_chunk: u64,
    /// Index of its placement.
    pub placement: usize,
    /// Times with that placement, simulated with contention.
    pub simulated: PhaseTimes,
    /// Times with the placement that is best for this cell alone, simulated in the same way.
    pub own: PhaseTimes,
    /// Time to move weights before and after this cell, if that is faster than keeping the shared
    /// homes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Seconds>,
}

/// A batch and prompt length without a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoPlan {
    /// Number of sequences.
    pub batch: u64,
    /// Prompt tokens of each sequence.
    pub prompt_tokens: u64,
    /// The reason.
    pub reason: String,
}

/// Cost of keeping weights in shared homes. Ratios compare objectives, weighted by cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharingCost {
    /// Mean of (objective here, including moves of weights) ÷ (objective of the cell's own plan),
    /// simulated.
    pub slowdown: Ratio,
    /// The largest of these ratios.
    pub worst: Ratio,
    /// Proven quality: a lower bound of the minimised mean over all tables, divided by its value.
    /// The bound assumes that every cell has its own plan.
    pub proven: Ratio,
}

/// Plans for many cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanTable {
    /// [`TABLE_VERSION`].
    pub table: u32,
    /// Where to find the machine and the model. The program that looked them up fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PlanOrigin>,
    /// The machine it was made for.
    pub machine: Identity,
    /// The model it was made for.
    pub model: Identity,
    /// Number formats.
    pub formats: Formats,
    /// Output tokens of each sequence, in every cell.
    pub output_tokens: u64,
    /// The objective.
    pub objective: Objective,
    /// The limits that it keeps.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slo: Slo,
    /// The prices of the objective `cost`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub costs: Costs,
    /// Cost of sharing homes.
    pub sharing: SharingCost,
    /// The placements, each once. All cells without a switch have the same homes of all weights.
    pub placements: Vec<NamedPlacement>,
    /// The cells.
    pub cells: Vec<CellPlan>,
    /// The cells without a plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<NoPlan>,
    /// In a file, the digest of what is above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Whether the file had another digest, or none: it was edited since it was written.
    #[serde(skip)]
    pub edited: bool,
}

impl NamedPlacement {
    /// `placement` with names.
    pub(crate) fn from_placement(machine: &Machine, model: &Model, placement: &Placement) -> Self {
        let (embed, layers, head) = named(machine, model, placement);
        Self { embed, layers, head }
    }

    /// The placement by index.
    ///
    /// # Errors
    /// Unknown names, shares that do not add up to 1, or gaps in the layers.
    pub fn placement(&self, machine: &Machine, model: &Model) -> Result<Placement, PlanError> {
        placement_of(machine, model, (&self.embed, &self.layers, &self.head), Pipelining::default())
    }
}

impl PlanTable {
    /// Reads a table for `machine` and `model`, and its placements. Messages call the file `file`.
    ///
    /// # Errors
    /// Names file, line, key and value if the text is not a table or does not match: another
    /// version, machine or model, an invalid placement or placement index, or more bytes than a
    /// memory holds.
    pub fn read(
        text: &str,
        file: &str,
        machine: &Machine,
        model: &Model,
    ) -> Result<(Self, Vec<Placement>), FileError> {
        let table = Self::from_yaml(text, file)?;
        let placements = table.checked(machine, model).map_err(|error| {
            let path: Vec<_> = error.path.iter().map(String::as_str).collect();
            yaml::refuse(text, file, &path, format!("is {}: {}", error.value, error.wanted))
        })?;
        Ok((table, placements))
    }

    /// Reads the document without checking it against a machine or model.
    ///
    /// # Errors
    /// Names file, line and key if the text is not a table.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let mut table: Self = yaml::read(text, file)?;
        let digest = table.digest.take();
        table.edited = digest.is_none_or(|digest| digest != fingerprint(&yaml::write(&table)));
        Ok(table)
    }

    /// The document with its digest, as it goes into a file.
    pub fn sealed(&self) -> Self {
        Self { digest: Some(fingerprint(&yaml::write(self))), ..self.clone() }
    }

    /// The document as the text of a file.
    pub fn to_yaml(&self) -> String {
        yaml::write(&self.sealed())
    }

    /// The workload of a cell.
    pub fn workload(&self, cell: &CellPlan) -> Workload {
        let CellPlan { batch, prompt_tokens, .. } = *cell;
        Workload { batch, prompt_tokens, output_tokens: self.output_tokens, speculation: None }
    }

    /// The smallest planned cell with at least this batch and prompt length: its memory suffices.
    /// `None` if there is no such cell.
    pub fn cell(&self, batch: u64, prompt_tokens: u64) -> Option<&CellPlan> {
        let enough =
            self.cells.iter().filter(|cell| cell.batch >= batch && cell.prompt_tokens >= prompt_tokens);
        enough.min_by_key(|cell| (cell.batch, cell.prompt_tokens))
    }

    /// The placements by index, after checking every cell against the machine and the model.
    fn checked(&self, machine: &Machine, model: &Model) -> Result<Vec<Placement>, PlanError> {
        if self.table != TABLE_VERSION {
            let wanted = format!("this program reads version {TABLE_VERSION}: make the table anew");
            return Err(PlanError::new(&["table"], self.table, wanted));
        }
        check_identity("machine", &self.machine, &machine.name, &machine.fingerprint())?;
        check_identity("model", &self.model, &model.name, &model.fingerprint())?;
        let read_placement = |(index, named): (usize, &NamedPlacement)| {
            let place = |error: PlanError| error.under(["placements".to_owned(), index.to_string()]);
            named.placement(machine, model).map_err(place)
        };
        let placements: Vec<_> =
            self.placements.iter().enumerate().map(read_placement).collect::<Result<_, _>>()?;
        let cost_model = CostModel { machine, model, formats: &self.formats };
        for (index, cell) in self.cells.iter().enumerate() {
            let place = |error: PlanError| error.under(["cells".to_owned(), index.to_string()]);
            self.check_cell(cost_model, cell, &placements).map_err(place)?;
        }
        Ok(placements)
    }

    fn check_cell(
        &self,
        cost_model: CostModel<'_>,
        cell: &CellPlan,
        placements: &[Placement],
    ) -> Result<(), PlanError> {
        let workload = self.workload(cell);
        workload
            .check(cost_model.model)
            .map_err(|error| PlanError::new(&["batch"], cell.batch, error.to_string()))?;
        if !(1..=cell.prompt_tokens).contains(&cell.prefill_chunk) {
            let wanted = format!("from 1 to the {} prompt tokens", cell.prompt_tokens);
            return Err(PlanError::new(&["prefill_chunk"], cell.prefill_chunk, wanted));
        }
        let Some(placement) = placements.get(cell.placement) else {
            let wanted = format!("there are {} placements, counted from 0", placements.len());
            return Err(PlanError::new(&["placement"], cell.placement, wanted));
        };
        let extent = RunExtent {
            batch: cell.batch,
            context: workload.context(),
            chunk: cell.prefill_chunk,
            step_tokens: 1,
        };
        check_fit(cost_model, &extent, placement, "placement")
    }
}
