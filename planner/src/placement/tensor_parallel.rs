//! The part of a model that each rank of a device holds and computes, the sums over ranks, and the
//! hops between stages.
//!
//! [`Model::rank_share`] divides a model. The bytes of a share count once for each rank, so vectors
//! that every rank holds count several times. With one rank nothing changes.
//! Where experts are whole, each counts once. The stages of a pipeline hold whole layers, so only
//! the ranks of one stage share a layer. Engines that share whole experts have all else of a layer
//! once each, and sequences of their own: a step's sequences are dealt out among them.

use hwprofiles::{AttentionShape, Bytes, DType, DeviceId, Elements, Flop, Machine, MemoryId, Ranks, Seconds};
use scenarios::{
    ActivationBuffer, ExpertTraffic, Formats, LayerKind, Model, Operator, Phase, Shape, Step, Sublayer, Work,
    kv_bytes,
};
use std::borrow::Cow;
use std::ops::Range;

/// A model that is divided over ranks.
#[derive(Debug, Clone)]
pub(crate) struct ModelShare<'a> {
    model: &'a Model,
    /// The part of one rank.
    pub share: Cow<'a, Model>,
    /// Number of ranks that share a matrix.
    pub ranks: u64,
    /// Engines that share whole experts, each on so many ranks.
    pub engines: u64,
    /// Whether a step is that of one of these engines, in place of all of them.
    one_engine: bool,
    /// Whether each routed expert is whole on one of the ranks of all engines.
    whole_experts: bool,
    /// Whether a rank with whole experts goes through the rows of all experts.
    all_expert_rows: bool,
    /// The multiple to which kernels of sparse latent attention fill up heads, where they do.
    sparse_heads: Option<u64>,
}

impl<'a> ModelShare<'a> {
    /// The model as `ranks` divide it.
    fn new(model: &'a Model, ranks: Option<&Ranks>) -> Self {
        let whole_experts = ranks.is_some_and(|ranks| ranks.whole_experts);
        let engines = ranks.map_or(1, |ranks| ranks.data.max(1));
        let one_engine = ranks.is_some_and(|ranks| ranks.one_engine);
        let ranks = ranks.map_or(1, Ranks::per_engine);
        let share = match whole_experts {
            true => model.share_with_whole_experts(ranks),
            false => model.rank_share(ranks),
        };
        let (all_expert_rows, sparse_heads) = (false, None);
        Self { model, share, ranks, engines, one_engine, whole_experts, all_expert_rows, sparse_heads }
    }

    /// The same division of the layers of `kind`; of embed and head without one.
    pub fn of_kind(&self, kind: Option<LayerKind>) -> ModelShare<'_> {
        let share = Cow::Borrowed(self.share.shape_or_ends(kind));
        ModelShare { model: self.model.shape_or_ends(kind), share, ..*self }
    }

    /// The model as the ranks that own `memory` divide it.
    pub fn in_memory(machine: &Machine, model: &'a Model, memory: MemoryId) -> Self {
        let owners = machine.devices.iter().filter(|device| device.memory == memory);
        let ranks = owners.filter_map(|device| device.ranks.as_ref()).max_by_key(|ranks| ranks.count);
        Self::new(model, ranks)
    }

    /// The model as the ranks of `device` divide it.
    pub fn on_device(machine: &Machine, model: &'a Model, device: DeviceId) -> Self {
        let device = machine.device(device);
        let sparse_heads = device.details.sparse_heads.as_ref().map(|heads| heads.value);
        let all_expert_rows = device.details.all_expert_rows;
        Self { sparse_heads, all_expert_rows, ..Self::new(model, device.ranks.as_ref()) }
    }

    /// The ranks of all engines that share a layer's experts.
    pub fn all_ranks(&self) -> u64 {
        self.ranks * self.engines
    }

    /// The part of `step` that one engine has, and what the ranks with its experts compute.
    fn engine_step(&self, step: &Step) -> [Step; 2] {
        match self.one_engine {
            true => [*step, Step { batch: step.batch * self.engines, ..*step }],
            false => [Step { batch: step.batch.div_ceil(self.engines), ..*step }, *step],
        }
    }

    /// The rows of one rank's matrix that belong to `rows` of the whole matrix.
    pub fn rows(&self, sublayer: Sublayer, rows: &Range<u64>) -> Range<u64> {
        sublayer.rank_rows(self.model, self.ranks, rows)
    }

    /// Bytes of `rows` of a matrix, over all ranks.
    pub fn matrix_bytes(&self, sublayer: Sublayer, formats: &Formats, rows: &Range<u64>) -> Bytes {
        let rows = self.rows(sublayer, rows);
        sublayer.matrix_bytes(&self.share, formats.weights, &rows) * self.copies(sublayer)
    }

    /// Bytes of norms, biases and position tables, over all ranks.
    pub fn vector_bytes(&self, sublayer: Sublayer) -> Bytes {
        sublayer.vector_bytes(&self.share) * self.copies(sublayer)
    }

    /// How many ranks hold something of what the share of one rank has.
    fn copies(&self, sublayer: Sublayer) -> u64 {
        if self.whole_experts && sublayer == Sublayer::Experts { 1 } else { self.all_ranks() }
    }

    /// The work of the rank that has most to do. All ranks work at the same time.
    pub fn work(
        &self,
        operator: Operator,
        formats: &Formats,
        step: &Step,
        rows: &Range<u64>,
        traffic: Option<ExpertTraffic>,
    ) -> Work {
        let [own, of_all] = self.engine_step(step);
        let (traffic, step) = match &self.share.experts {
            Some(experts) if self.whole_experts && operator == Operator::Experts => {
                let all = traffic.unwrap_or_else(|| experts.traffic(rows, of_all.rows()));
                let busiest = experts.busiest_share(all, self.all_ranks());
                let pairs = if self.all_expert_rows { all.pairs } else { busiest.pairs };
                (Some(ExpertTraffic { pairs, ..busiest }), &of_all)
            }
            _ => (traffic, &own),
        };
        let rows = self.rows(operator.sublayer(), rows);
        let work = Work::count_routed(operator, &self.share, formats, step, &rows, traffic);
        match self.sparse_shape(operator, step) {
            Some(shape) if work.flop > Flop::ZERO => Work { shape: Shape::Attention(shape), ..work },
            _ => work,
        }
    }

    /// The shape of attention, where the device has kernels of its own for sparse latent attention.
    pub fn sparse_shape(&self, operator: Operator, step: &Step) -> Option<AttentionShape> {
        let heads = self.sparse_heads.filter(|_| operator == Operator::Attention)?;
        self.share.sparse_latent_shape(heads, step)
    }

    /// Bytes of the cache of one layer, over all ranks.
    pub fn kv_bytes(&self, formats: &Formats, batch: u64, tokens: u64) -> Bytes {
        kv_bytes(&self.share, formats, batch, tokens) * self.ranks
    }

    /// Bytes of the state of `batch` sequences in one layer, over all ranks.
    pub fn state_bytes(&self, batch: u64) -> Bytes {
        self.share.state_bytes() * (batch * self.ranks)
    }

    /// Bytes that take the tokens of `step` back in one layer, over all ranks.
    pub fn unverified_bytes(&self, step: &Step) -> Bytes {
        let tokens = if step.phase == Phase::Decode { step.new_tokens } else { 1 };
        self.share.unverified_bytes(tokens) * (step.batch * self.ranks)
    }

    /// Bytes of `columns` columns of a buffer with `rows` rows, over all ranks.
    pub fn buffer_bytes(
        &self,
        buffer: ActivationBuffer,
        formats: &Formats,
        rows: u64,
        columns: u64,
    ) -> Bytes {
        let columns = buffer.rank_columns(self.model, self.ranks, columns);
        buffer.bytes(formats, rows, columns) * self.ranks
    }

    /// Bytes that new tokens append to the cache of one layer, over all ranks.
    pub fn appended_bytes(&self, formats: &Formats, batch: u64, new_tokens: u64) -> Bytes {
        self.share.appended_bytes(formats, batch, new_tokens) * self.ranks + self.state_bytes(batch)
    }

    /// Bytes of a whole buffer with `rows` rows, over all ranks, as wide as any layer needs it.
    pub fn whole_buffer(&self, buffer: ActivationBuffer, formats: &Formats, rows: u64) -> Bytes {
        let of_shape = |model: &Model, share: &Model| {
            let part = ModelShare { model, share: Cow::Borrowed(share), ..*self };
            part.buffer_bytes(buffer, formats, rows, buffer.columns(model))
        };
        let shapes = self.model.shapes().iter().zip(self.share.shapes());
        let widest = shapes.map(|(shape, share)| of_shape(shape, share)).max();
        widest.unwrap_or_default().max(of_shape(self.model, &self.share))
    }
}

/// Time in which the ranks of a device combine their shares of `columns` of an operator's output:
/// an all-reduce if outputs are partial sums or go through a norm over all heads; half of one (a
/// gather) for the logits; otherwise nothing. To the output of attention each layer adds its part
/// of the hops between stages.
pub(crate) fn combine_time(
    ranks: Option<&Ranks>,
    operator: Operator,
    (model, formats): (&Model, &Formats),
    tokens: u64,
    columns: &Range<u64>,
) -> Seconds {
    let Some(ranks) = ranks else { return Seconds::ZERO };
    let [tokens, of_all] = ranks.engine_tokens(tokens);
    let moved = |tokens| operator.writes().bytes(formats, tokens, columns.end - columns.start);
    let bytes = moved(tokens);
    let combined = match operator {
        Operator::HeadProj => ranks.all_reduce.gather_time(bytes, ranks.per_engine()),
        // The tokens of all engines are gathered before their experts, and the results summed.
        Operator::Experts if ranks.data > 1 => ranks.all_reduce.time(moved(of_all), ranks.per_stage()),
        summed if summed.needs_all_reduce() => ranks.all_reduce.time(bytes, ranks.per_engine()),
        // A norm over all heads of q and one over those of k: a sum of squares each.
        Operator::Rotate if model.wiring.norms_whole_qk => {
            ranks.all_reduce.time(DType::F32.bytes(Elements::new(2 * tokens)), ranks.per_engine())
        }
        _ => Seconds::ZERO,
    };
    match operator {
        Operator::OutProj if ranks.stages > 1 => {
            combined + ranks.send_time(bytes) * ((ranks.stages - 1) as f64 / model.layers as f64)
        }
        _ => combined,
    }
}
