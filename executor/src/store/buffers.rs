//! The buffers of a session, each in the memory that the placement names.
//!
//! Buffers that several lanes use are behind locks. The program's dependencies already order all
//! conflicting uses, with one exception that does not affect values: a lane may copy some columns
//! of an activation while the activation's owner computes others. There the lock makes the copy
//! wait. Micro-batches have their own buffers, so that none waits for another. Lanes lock
//! activations in the order of ([`scenarios::ActivationBuffer`], device) and other buffers after
//! them, so they cannot deadlock.

use crate::error::ExecutorError;
use crate::gpu::runtime::GpuRuntime;
use crate::setup::run_setup::RunSetup;
use crate::store::cache_layout::CacheLayout;
use crate::store::carried::CarriedRows;
use crate::store::locks::{read, write};
use crate::store::slices::{
    KeptSlices, PackedSlice, SUBLAYERS, keep_slices, read_by_products, sublayer_index,
};
use crate::weights::checkpoint::Checkpoint;
use hwprofiles::{Bytes, DeviceId, MemoryId};
use kernels::cuda::MatrixOrder;
use kernels::{Buffer, KvShape, MemoryArena, RopeTable, Scratch, Weights};
use planner::{Action, MicroBatch, PhasePrograms, Placement, StagingSlot, cache_bytes, staging_slots};
use scenarios::{ActivationBuffer as Activation, Model, Sublayer};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, RwLock};

/// Number of activations.
pub(super) const ACTIVATIONS: usize = Activation::Shared as usize + 1;

/// The staging slots of a device for one kind of content.
pub(crate) type StagingSlots = Vec<RwLock<Buffer>>;

/// All buffers of a session.
#[derive(Debug, Default)]
pub(crate) struct Store {
    memories: Vec<MemoryArena>,
    /// By [`sublayer_index`].
    pub(super) matrices: Vec<Vec<PackedSlice>>,
    /// By device, then [`sublayer_index`].
    vectors: Vec<Option<Buffer>>,
    /// By device: one table for all layers, or one for layers without a window and one for layers
    /// with one.
    rotation: Vec<Vec<RopeTable>>,
    /// By layer, then micro-batch.
    pub(super) kv: Vec<RwLock<Buffer>>,
    /// By layer.
    caches: Vec<CacheLayout>,
    /// By layer, then micro-batch, for its largest number of sequences.
    kv_shapes: Vec<KvShape>,
    /// Micro-batches.
    pub(super) parts: usize,
    /// By device, then activation, then micro-batch.
    pub(super) activations: Vec<Option<RwLock<Buffer>>>,
    pub(super) weight_slots: Vec<StagingSlots>,
    /// By slot, then micro-batch.
    pub(super) kv_slots: Vec<StagingSlots>,
    scratch: Vec<Option<Mutex<Scratch>>>,
    tied: bool,
    /// [`Checkpoint::tiled_heads`].
    pub tiled_heads: bool,
    /// By micro-batch.
    carried: Vec<Mutex<CarriedRows>>,
    /// By layer, the layer whose cache it attends to.
    cache_layers: Vec<u32>,
}

/// Number of [`sublayer_index`] values.
pub(super) fn place_count(setup: &RunSetup) -> usize {
    (setup.placement.layers.len() + 1) * SUBLAYERS
}

impl Store {
    /// Allocates everything and reads the weights. Threads of rayon's pool pack several matrices at
    /// once. No matrix is ever in memory twice.
    pub fn load(
        setup: &RunSetup,
        programs: &PhasePrograms,
        checkpoint: &Checkpoint,
        gpu: Option<&GpuRuntime>,
    ) -> Result<Self, ExecutorError> {
        let memory = |id: MemoryId| {
            let memory = setup.machine.memory(id);
            match gpu.filter(|gpu| gpu.memory() == id) {
                Some(gpu) => {
                    MemoryArena::on_gpu(&memory.name, memory.capacity.value, Arc::clone(gpu.accelerator()))
                }
                None => MemoryArena::new(&memory.name, memory.capacity.value),
            }
        };
        let memories = setup.machine.memory_ids().map(memory).collect();
        Self { memories, ..Self::default() }.rebuild(None, setup, programs, checkpoint, gpu)
    }

    /// Rebuilds the store for another placement than `before`. What keeps its home stays, KV caches
    /// with their contents; weights that move are read again.
    pub fn rebuild(
        self,
        before: Option<&Placement>,
        setup: &RunSetup,
        programs: &PhasePrograms,
        checkpoint: &Checkpoint,
        gpu: Option<&GpuRuntime>,
    ) -> Result<Self, ExecutorError> {
        let machine = &setup.machine;
        let Self {
            memories,
            matrices,
            kv: old_kv,
            activations,
            weight_slots,
            kv_slots,
            vectors,
            rotation,
            scratch,
            ..
        } = self;
        // These are freed first, to make room for the new ones.
        drop((activations, weight_slots, kv_slots, vectors, rotation, scratch));
        let tied = planner::shares_embedding(&setup.model, &setup.placement);
        let by_products = gpu.map(|gpu| read_by_products(programs, gpu.device(), tied)).unwrap_or_default();
        let mut kept =
            before.map_or_else(KeptSlices::new, |before| keep_slices(before, matrices, &setup.placement));
        kept.retain(|key, slice| slice.order == MatrixOrder::Panels || by_products.contains(&key.place()));
        let carried = before.map_or(Ok(vec![]), |before| hand_over_kv(before, &setup.placement, old_kv))?;
        let own = |device: DeviceId| &memories[machine.device(device).memory.0];
        let (activations, weight_slots, kv_slots) = Self::workspace(setup, programs, &own)?;
        let mut scratch: Vec<_> = machine.devices.iter().map(|_| None).collect();
        for (device, bytes) in planner::scratch_bytes(machine, programs, &setup.model, &setup.extent) {
            scratch[device.0] = Some(Mutex::new(Scratch::new(own(device), bytes.get() as usize)?));
        }
        let mut store = Self {
            matrices: Self::matrices(setup, checkpoint, &memories, tied, kept)?,
            vectors: Self::vectors(setup, checkpoint, &own)?,
            rotation: Self::rotation(setup, &own)?,
            kv: Self::caches(setup, &memories, carried)?,
            caches: CacheLayout::of_layers(setup),
            kv_shapes: cache_shapes(setup),
            parts: setup.placement.pipelining.micro_batches as usize,
            activations,
            weight_slots,
            kv_slots,
            scratch,
            tied,
            tiled_heads: checkpoint.tiled_heads(),
            carried: sequences_by_part(setup).map(|_| Mutex::default()).collect(),
            // A model has at most 2¹⁶ layers.
            cache_layers: (0..setup.model.layers).map(|it| setup.model.cache_layer(it) as u32).collect(),
            memories,
        };
        store.check_slots(programs)?;
        if let Some(gpu) = gpu {
            store.order_by_rows(&by_products, gpu)?;
            store.pin(setup, programs, gpu)?;
        }
        Ok(store)
    }

    /// Refuses a slice that is larger than the slot to which it is copied: a file whose tensors
    /// have more bits than the plan's format.
    fn check_slots(&self, programs: &PhasePrograms) -> Result<(), ExecutorError> {
        for task in programs.prefill.tasks.iter().chain(&programs.decode.tasks) {
            let Action::FetchWeights { sublayer, rows, device, slot } = &task.action else { continue };
            let weights = self.weights(task.layer, *sublayer, rows.start);
            let bytes = weights.iter().map(|weights| weights.buffer().len()).sum::<usize>();
            let room = read(self.weight_slot(*device, *slot)).len();
            if bytes > room {
                let wanted = format!(
                    "the file has {} of {sublayer}, and the plan streams them through slots of {}: plan with the file's largest format",
                    Bytes::new(bytes as u64),
                    Bytes::new(room as u64)
                );
                let formats = weights.iter().map(|weights| weights.shape().0.name());
                let formats: Vec<_> = formats.collect();
                return Err(ExecutorError::refused("formats.weights", formats.join(", "), wanted));
            }
        }
        Ok(())
    }

    /// The KV caches at their homes, with the contents of `carried` caches.
    fn caches(
        setup: &RunSetup,
        memories: &[MemoryArena],
        carried: Vec<KvHandover>,
    ) -> Result<Vec<RwLock<Buffer>>, ExecutorError> {
        let mut carried = carried.into_iter();
        let mut caches = Vec::new();
        for (layer, number) in setup.placement.layers.iter().zip(0..) {
            let shape = setup.model.layer(number);
            for sequences in sequences_by_part(setup) {
                let bytes = cache_bytes(shape, &setup.formats, sequences, &setup.extent);
                // A layer without a mixer has an empty one.
                let home = layer.kv_home().unwrap_or(MemoryId(0));
                let new = || touched(&memories[home.0], bytes);
                caches.push(match carried.next() {
                    Some(KvHandover::Kept(cache)) => cache,
                    Some(KvHandover::Contents(bytes)) => {
                        let new = new()?;
                        write(&new).upload(0, &bytes)?;
                        new
                    }
                    None => new()?,
                });
            }
        }
        Ok(caches)
    }

    /// Activations and staging slots, which all lanes share.
    #[expect(clippy::type_complexity, reason = "three lists, taken apart at once")]
    fn workspace<'a>(
        setup: &RunSetup,
        programs: &PhasePrograms,
        own: &impl Fn(DeviceId) -> &'a MemoryArena,
    ) -> Result<(Vec<Option<RwLock<Buffer>>>, Vec<StagingSlots>, Vec<StagingSlots>), ExecutorError> {
        let RunSetup { model, formats, extent, .. } = setup;
        let devices = setup.machine.devices.len();
        let parts = setup.placement.pipelining.micro_batches as usize;
        let mut activations: Vec<_> = (0..devices * ACTIVATIONS * parts).map(|_| None).collect();
        for ((device, buffer), rows) in planner::activation_buffers(programs, extent) {
            let first = (device.0 * ACTIVATIONS + buffer as usize) * parts;
            // The same number of rows for each sequence.
            for (place, sequences) in activations[first..][..parts].iter_mut().zip(sequences_by_part(setup)) {
                let bytes =
                    buffer.bytes(formats, rows / extent.batch * sequences, buffer.most_columns(model));
                *place = Some(touched(own(device), bytes)?);
            }
        }
        let empty = || (0..devices).map(|_| StagingSlots::new()).collect::<Vec<_>>();
        let (mut weight_slots, mut kv_slots) = (empty(), empty());
        for (device, StagingSlot { weights, .. }) in
            staging_slots(&setup.machine, programs, model, formats, extent)
        {
            let streamed = streamed_shapes(model, programs, device);
            for _ in 0..setup.placement.pipelining.slots {
                weight_slots[device.0].push(touched(own(device), weights)?);
                for sequences in sequences_by_part(setup) {
                    let bytes = |shape| cache_bytes(shape, formats, sequences, extent);
                    let bytes = streamed.iter().copied().map(bytes).max().unwrap_or(Bytes::ZERO);
                    kv_slots[device.0].push(touched(own(device), bytes)?);
                }
            }
        }
        Ok((activations, weight_slots, kv_slots))
    }

    /// Bytes in use in each memory, by index.
    pub fn used(&self) -> Vec<Bytes> {
        self.memories.iter().map(MemoryArena::used).collect()
    }

    /// The slice of a sublayer's matrix that begins with row `first`.
    pub fn slice(&self, layer: Option<u32>, sublayer: Sublayer, first: u64) -> &PackedSlice {
        let sublayer = self.kept_as(sublayer);
        let parts = &self.matrices[sublayer_index(layer, sublayer)];
        parts.iter().find(|part| part.rows.start == first).expect("the program's parts are the placement's")
    }

    /// The packed matrices of that slice; of the embedding's a tied head has the token table.
    pub fn weights(&self, layer: Option<u32>, sublayer: Sublayer, first: u64) -> &[Weights] {
        let weights = &self.slice(layer, sublayer, first).weights;
        if self.kept_as(sublayer) == sublayer { weights } else { &weights[..1] }
    }

    /// The sublayer that holds a sublayer's matrix: a tied head uses the embedding's.
    pub(super) fn kept_as(&self, sublayer: Sublayer) -> Sublayer {
        if self.tied && sublayer == Sublayer::Head { Sublayer::Embed } else { sublayer }
    }

    /// Norms, biases and tables of a sublayer on `device`, one after another; empty where it has
    /// none.
    pub fn vectors_of(&self, device: DeviceId, layer: Option<u32>, sublayer: Sublayer) -> &[f32] {
        self.vectors_at(device, layer, sublayer).map_or(&[], |buffer| buffer.view())
    }

    /// The buffer that holds them, if there is one.
    pub fn vectors_at(&self, device: DeviceId, layer: Option<u32>, sublayer: Sublayer) -> Option<&Buffer> {
        self.vectors[device.0 * self.matrices.len() + sublayer_index(layer, sublayer)].as_ref()
    }

    /// The rotation table of a device that attends, for layers with a window or for the others.
    pub fn rotation_of(&self, device: DeviceId, windowed: bool) -> Option<&RopeTable> {
        let tables = &self.rotation[device.0];
        tables.get(usize::from(windowed)).or(tables.first())
    }

    /// A micro-batch's part of a layer's KV cache: all keys, then all values.
    pub fn kv(&self, layer: u32, part: MicroBatch) -> &RwLock<Buffer> {
        &self.kv[layer as usize * self.parts + part.index as usize]
    }

    /// The shape of a micro-batch's part of a layer's KV cache, at home and at the start of a
    /// staging slot. The cache of a layer with a window is a ring with room for the window.
    pub fn kv_shape(&self, layer: u32, part: MicroBatch) -> KvShape {
        self.kv_shapes[layer as usize * self.parts + part.index as usize]
    }

    /// The layer whose cache `layer` attends to: its own, or that of an earlier one.
    pub fn cache_layer(&self, layer: u32) -> u32 {
        self.cache_layers[layer as usize]
    }

    /// Whether a later layer attends to the layer's cache.
    pub fn is_shared(&self, layer: u32) -> bool {
        self.cache_layers[layer as usize + 1..].contains(&layer)
    }

    /// What the operators of a micro-batch carry beside its activations.
    pub fn carried(&self, part: MicroBatch) -> &Mutex<CarriedRows> {
        &self.carried[part.index as usize]
    }

    /// What the layer's cache consists of.
    pub fn cache_layout(&self, layer: u32) -> &CacheLayout {
        &self.caches[layer as usize]
    }

    /// A micro-batch's part of an activation of `device`.
    pub fn activation(&self, device: DeviceId, buffer: Activation, part: MicroBatch) -> &RwLock<Buffer> {
        let first = (device.0 * ACTIVATIONS + buffer as usize) * self.parts;
        let slot = &self.activations[first + part.index as usize];
        slot.as_ref().expect("planner::activation_buffers lists what the program uses")
    }

    /// Calls `read_row` for rows of the logits of `vocab` tokens in `device`'s memory; `rows` has
    /// the number of rows of each micro-batch.
    pub fn logits<T>(
        &self,
        device: DeviceId,
        rows: impl Iterator<Item = usize>,
        vocab: u64,
        mut read_row: impl FnMut(&[f32]) -> T,
    ) -> Result<Vec<T>, kernels::KernelError> {
        let mut results = Vec::new();
        for (part, rows) in MicroBatch::all(self.parts as u64).zip(rows).filter(|(_, rows)| *rows > 0) {
            let logits = read(self.activation(device, Activation::Logits, part));
            let (vocab, mut read_row) = (vocab as usize, |row: &[f32]| results.push(read_row(row)));
            if logits.is_on_gpu() {
                logits.read_back::<f32>(0..rows * vocab)?.chunks_exact(vocab).for_each(&mut read_row);
            } else {
                logits.view::<f32>().chunks_exact(vocab).take(rows).for_each(&mut read_row);
            }
        }
        Ok(results)
    }

    /// The staging slots for weights of a device.
    pub fn weight_slot(&self, device: DeviceId, slot: usize) -> &RwLock<Buffer> {
        &self.weight_slots[device.0][slot]
    }

    /// A micro-batch's part of a staging slot for KV caches of a device.
    pub fn kv_slot(&self, device: DeviceId, slot: usize, part: MicroBatch) -> &RwLock<Buffer> {
        &self.kv_slots[device.0][slot * self.parts + part.index as usize]
    }

    /// The working memory of a device's kernels.
    pub fn scratch(&self, device: DeviceId) -> &Mutex<Scratch> {
        self.scratch[device.0].as_ref().expect("every device with tasks has scratch")
    }
}

/// A KV cache that is carried over to another placement: the buffer itself, or its contents.
enum KvHandover {
    Kept(RwLock<Buffer>),
    Contents(Vec<u8>),
}

/// Carries `caches` over from placement `before` to `after`. Caches that move are freed and only
/// their contents are kept.
fn hand_over_kv(
    before: &Placement,
    after: &Placement,
    caches: Vec<RwLock<Buffer>>,
) -> Result<Vec<KvHandover>, kernels::KernelError> {
    let parts = before.pipelining.micro_batches as usize;
    let stays = before.layers.iter().zip(&after.layers).map(|(old, new)| old.kv_home() == new.kv_home());
    let stays = stays.flat_map(|stays| std::iter::repeat_n(stays, parts));
    let hand_over = |(cache, stays): (RwLock<Buffer>, bool)| match stays {
        true => Ok(KvHandover::Kept(cache)),
        false => {
            let cache = read(&cache);
            cache.read_back(0..cache.len()).map(KvHandover::Contents)
        }
    };
    caches.into_iter().zip(stays).map(hand_over).collect()
}

/// By layer, then micro-batch: the shape of its KV cache.
fn cache_shapes(setup: &RunSetup) -> Vec<KvShape> {
    let shape = |layer: u64| {
        let shape = setup.model.layer(layer);
        sequences_by_part(setup).map(move |sequences| KvShape {
            dtype: setup.formats.kv,
            sequences: sequences as usize,
            kv_heads: shape.kv_heads as usize,
            capacity: shape.kept_positions(setup.extent.context) as usize,
            head_dim: shape.head_dim as usize,
        })
    };
    (0..setup.model.layers).flat_map(shape).collect()
}

/// The shapes of layers whose KV caches are streamed to `device`.
fn streamed_shapes<'m>(model: &'m Model, programs: &PhasePrograms, device: DeviceId) -> Vec<&'m Model> {
    let tasks = programs.prefill.tasks.iter().chain(&programs.decode.tasks);
    let streamed =
        tasks.filter(|task| matches!(task.action, Action::FetchKv { device: to, .. } if to == device));
    let kinds: BTreeSet<_> = streamed.map(|task| task.kind).collect();
    kinds.into_iter().map(|kind| model.shape_or_ends(kind)).collect()
}

/// By micro-batch: its largest number of sequences.
fn sequences_by_part(setup: &RunSetup) -> impl Iterator<Item = u64> {
    let batch = setup.extent.batch;
    MicroBatch::all(setup.placement.pipelining.micro_batches).map(move |part| {
        let sequences = part.sequences(batch);
        sequences.end - sequences.start
    })
}

/// A buffer whose pages are allocated, so that the first step does not pay for them.
fn touched(memory: &MemoryArena, bytes: Bytes) -> Result<RwLock<Buffer>, ExecutorError> {
    let mut buffer = memory.allocate(bytes.get() as usize)?;
    buffer.touch();
    Ok(RwLock::new(buffer))
}
