//! A model, its placement and the size of a run, checked before anything is allocated.

use crate::error::ExecutorError;
use crate::setup::gpu_limits;
use hwprofiles::{DType, DeviceKind, Machine, MemoryKind};
use planner::{
    CostModel, PhasePrograms, Pipelining, Placement, Plan, Recorder, RunExtent, Slice, Slices, StepSpan,
    Trace, TraceEvent,
};
use scenarios::{Formats, Model, Phase, Sublayer};
use std::collections::BTreeSet;

/// A model, where its parts are placed, and how large a run may become.
#[derive(Debug, Clone)]
pub struct RunSetup {
    /// The machine.
    pub machine: Machine,
    /// The model.
    pub model: Model,
    /// Weights f32, bf16, fp8, fp8_block, int8 or int4, or a file's blocks; KV f32, bf16, int8 or
    /// int2; activations f32.
    pub formats: Formats,
    /// Which memory holds each part and which device computes it.
    pub placement: Placement,
    /// The most sequences, tokens per sequence and tokens per prefill step.
    pub extent: RunExtent,
    /// The plan's fingerprint, for the trace.
    pub plan: String,
}

impl RunSetup {
    /// The setup of `plan`, for the machine and model that it was made for.
    ///
    /// # Errors
    /// The plan was made for another machine or model, or is inconsistent.
    pub fn from_plan(machine: Machine, model: Model, plan: &Plan) -> Result<Self, ExecutorError> {
        let placement = plan.placement(&machine, &model)?;
        let (formats, extent, plan) = (plan.formats, plan.extent(), plan.fingerprint());
        Ok(Self { machine, model, formats, placement, extent, plan })
    }

    /// Checks that the setup can run, and lowers the placement to programs.
    ///
    /// # Errors
    /// A format that no kernel reads; a size of zero or beyond the model's positions; a task that a
    /// GPU cannot do; slices that do not partition a matrix or lie where they cannot be read; a
    /// missing link.
    pub(crate) fn programs(&self) -> Result<PhasePrograms, ExecutorError> {
        self.check_formats()?;
        self.check_extent()?;
        if self.placement.layers.len() as u64 != self.model.layers {
            let wanted = format!("the model has {}", self.model.layers);
            return Err(ExecutorError::refused("placement.layers", self.placement.layers.len(), wanted));
        }
        let Pipelining { slots, micro_batches } = self.placement.pipelining;
        if !Pipelining::SLOTS.contains(&slots) {
            let wanted = format!("from {} to {}", Pipelining::SLOTS.start(), Pipelining::SLOTS.end());
            return Err(ExecutorError::refused("placement.pipelining.slots", slots, wanted));
        }
        if !(1..=self.extent.batch).contains(&micro_batches) {
            let wanted = format!("from 1 to the {} sequences of the batch", self.extent.batch);
            return Err(ExecutorError::refused("placement.pipelining.micro_batches", micro_batches, wanted));
        }
        for (layer, sublayer, slices) in self.placement.sublayers() {
            let place =
                layer.map_or_else(|| sublayer.to_string(), |layer| format!("layers[{layer}].{sublayer}"));
            self.check_slices(&place, self.model.layer_or_ends(layer), sublayer, slices)?;
        }
        let programs = PhasePrograms::lower(&self.machine, &self.model, &self.placement)?;
        gpu_limits::check(&self.machine, &self.model, &self.formats, &programs, &self.extent)?;
        Ok(programs)
    }

    /// Refuses a checkpoint of another model. Its name and its weights' number format may differ.
    pub(crate) fn check_model(&self, found: &Model) -> Result<(), ExecutorError> {
        // Each shape of its layers has a name and formats too.
        let named = |shape: &Model| Model {
            name: found.name.clone(),
            dtype: found.dtype,
            published: None,
            ..shape.clone()
        };
        let ours = self.model.map_shapes(named);
        if ours == found.map_shapes(named) {
            return Ok(());
        }
        let wanted =
            format!("the plan is for '{}', whose config.json {}", self.model.name, differences(&ours, found));
        Err(ExecutorError::refused("checkpoint", format!("'{}'", found.name), wanted))
    }

    /// The costs of its tasks.
    pub(crate) fn cost_model(&self) -> CostModel<'_> {
        CostModel { machine: &self.machine, model: &self.model, formats: &self.formats }
    }

    /// A trace of this setup.
    pub(crate) fn trace(&self, recorder: Recorder, steps: Vec<StepSpan>, events: Vec<TraceEvent>) -> Trace {
        let (machine, model) = (self.machine.name.clone(), self.model.name.clone());
        Trace { recorder, machine, model, plan: self.plan.clone(), steps, events }
    }

    fn check_formats(&self) -> Result<(), ExecutorError> {
        let check = |key: &str, dtype: DType, accepted: &[DType]| {
            let names: Vec<_> = accepted.iter().map(|dtype| dtype.name()).collect();
            match accepted.contains(&dtype) {
                true => Ok(()),
                false => Err(ExecutorError::refused(
                    format!("formats.{key}"),
                    dtype,
                    format!("use {}", names.join(", ")),
                )),
            }
        };
        let matrices = [
            DType::F32,
            DType::Bf16,
            DType::Fp8,
            DType::Fp8Block,
            DType::Int8,
            DType::Int4,
            DType::Q8_0,
            DType::Q6K,
            DType::Q5K,
            DType::Q4K,
            DType::Q4_0,
            DType::Iq4Xs,
            DType::Iq4Nl,
            DType::Mxfp4,
            DType::Nvfp4,
        ];
        let weights = self.formats.weights.for_model(&self.model);
        let classes = weights.classes().map(|(class, format)| (class.name(), format));
        for (class, format) in classes.chain([("embed", weights.for_sublayer(Sublayer::Embed))]) {
            let key = match weights.one() {
                Some(_) => "weights".to_owned(),
                None => format!("weights.{class}"),
            };
            // Of a mixture, each tensor keeps the format that it has in its file.
            for (dtype, _) in format.parts() {
                check(&key, dtype, &matrices)?;
            }
        }
        check("kv", self.formats.kv, &[DType::F32, DType::Bf16, DType::Int8, DType::Int2])?;
        check("activations", self.formats.activations, &[DType::F32])
    }

    fn check_extent(&self) -> Result<(), ExecutorError> {
        let RunExtent { batch, context, chunk, step_tokens } = self.extent;
        for (key, value) in
            [("batch", batch), ("context", context), ("chunk", chunk), ("step_tokens", step_tokens)]
        {
            if value == 0 {
                return Err(ExecutorError::refused(format!("extent.{key}"), value, "at least 1"));
            }
        }
        if context > self.model.max_positions {
            let wanted = format!("model '{}' has {} positions", self.model.name, self.model.max_positions);
            return Err(ExecutorError::refused("extent.context", context, wanted));
        }
        Ok(())
    }

    /// Checks the slices of a sublayer in a layer of the shape `model`.
    fn check_slices(
        &self,
        place: &str,
        model: &Model,
        sublayer: Sublayer,
        slices: &Slices,
    ) -> Result<(), ExecutorError> {
        // The choice of experts needs the scores of all of them.
        let routes = sublayer == Sublayer::Router
            && model.experts.as_ref().is_some_and(|experts| !experts.has_plain_router());
        let divisible = sublayer == Sublayer::Router && !routes || sublayer.is_divisible(model);
        if slices.is_empty() || (slices.len() > 1 && !divisible) {
            let wanted = if divisible { "at least one" } else { "exactly one: it cannot be divided" };
            return Err(ExecutorError::refused(place, format!("{} slices", slices.len()), wanted));
        }
        let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
        let mut start = 0;
        for slice in slices {
            let panel = sublayer.panel();
            let whole = slice.rows.end == rows || slice.rows.end.is_multiple_of(panel);
            let empty = rows > 0 && slice.rows.is_empty();
            if slice.rows.start != start || slice.rows.end > rows || !whole || empty {
                let wanted = format!("slices follow each other from row 0 to {rows} at multiples of {panel}");
                return Err(ExecutorError::refused(place, format!("rows {:?}", slice.rows), wanted));
            }
            start = slice.rows.end;
            self.check_slice(place, sublayer, slice)?;
        }
        if start != rows {
            return Err(ExecutorError::refused(
                place,
                format!("rows up to {start}"),
                format!("all {rows} have a place"),
            ));
        }
        Ok(())
    }

    fn check_slice(&self, place: &str, sublayer: Sublayer, slice: &Slice) -> Result<(), ExecutorError> {
        let machine = &self.machine;
        let devices = [Phase::Prefill, Phase::Decode].map(|phase| slice.device(phase));
        let known = devices.iter().all(|device| device.0 < machine.devices.len());
        if !known || slice.home.0 >= machine.memories.len() {
            let value = format!("{:?} in {:?}", devices, slice.home);
            return Err(ExecutorError::refused(
                place,
                value,
                format!("machine '{}' has fewer", machine.name),
            ));
        }
        let home = machine.memory(slice.home);
        if home.kind == MemoryKind::Striped {
            let wanted = "this version allocates nothing in pages of several memories in turn";
            return Err(ExecutorError::refused(place, &home.name, wanted));
        }
        for device in devices.map(|device| machine.device(device)) {
            if device.ranks() > 1 {
                let value = format!("{}, {} ranks", device.name, device.ranks());
                let wanted = "no device of several ranks is run here: export the plan, or plan with tensor_parallel: 1";
                return Err(ExecutorError::refused(place, value, wanted));
            }
            if device.kind != DeviceKind::Gpu && device.cores.is_empty() {
                return Err(ExecutorError::refused(place, &device.name, "the device needs a core to run on"));
            }
            if sublayer == Sublayer::Embed && device.memory != slice.home {
                let wanted = "the token table lies in the memory of the device that reads it";
                return Err(ExecutorError::refused(place, &machine.memory(slice.home).name, wanted));
            }
        }
        Ok(())
    }
}

/// Describes which keys of config.json differ between `ours` and `found`.
fn differences(ours: &Model, found: &Model) -> String {
    let keys = |model: &Model| -> serde_json::Map<String, serde_json::Value> {
        // Of a family that is not written only the name can differ.
        let text = model.to_config_json().unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    };
    let (ours, found) = (keys(ours), keys(found));
    let text = |value: Option<&serde_json::Value>| value.map_or("nothing".to_owned(), ToString::to_string);
    let all: BTreeSet<_> = ours.keys().chain(found.keys()).collect();
    let differ = all.into_iter().filter(|key| ours.get(*key) != found.get(*key));
    let words: Vec<_> = differ
        .map(|key| format!("has {key} {}, not {}", text(ours.get(key)), text(found.get(key))))
        .collect();
    if words.is_empty() { "differs".to_owned() } else { words.join(", ") }
}
