//! The times of products and attention in formats that were not measured on a device.
//!
//! A format without a table of its own is computed like the nearest format that has one:
//! - on a CPU a quantised one like measured `int8` or `int4`, which unpack groups of 32 values too;
//! - every other one like 16 bits, or 32 where there are no 16.
//!
//! Its time is the largest of three, with the device's [`Dequantisation`] joined to it:
//! - *reading*: the other format's time for one row, times the ratio of the bytes;
//! - *multiplying*: the other format's rate with [`MANY_ROWS`], for each row;
//! - the other format's time for all rows, less what is saved in reading.
//!
//! So a format of fewer bits is never slower than the other one by more than the dequantisation,
//! and never faster than its bytes are read.
//!
//! Where an engine states the rate of its own kernels for quantised weights, a product takes the
//! longer of reading them once, as for one row, and multiplying at that rate: kernels that multiply
//! blocks as integers are not bound by what 16 bits reach.

use crate::machine::device::{Device, DeviceKind};
use crate::machine::times::MissingRate;
use crate::rates::{AttentionShape, Basis, Bound, Dequantisation, Estimate, GemmRates, Phase};
use crate::units::{DType, Elements, Flop, FlopPerSec, Provenance, Ratio, Seconds, Sourced};

/// So many rows that the weights are read in a small part of the time.
const MANY_ROWS: u64 = 2048;

/// The most rows for which GPUs have vector kernels, which read the weights once and have no tiles
/// to fill.
pub(super) const VECTOR_ROWS: u64 = 8;

/// The widest heads that vector kernels of decode attention have.
const WIDEST_HEAD: u64 = 256;

/// Tiles have a multiple of so many rows.
const TILE_STEP: u64 = 8;

/// The rows of a tile for so many tokens: the fewest with which they need no more tiles than with
/// `most` rows in each.
fn tile_for(tokens: u64, most: u64) -> u64 {
    let tiles = tokens.div_ceil(most).max(1);
    tokens.div_ceil(tiles).next_multiple_of(TILE_STEP).min(most)
}

/// The sizes of y[m, n] = x[m, k] · W[n, k]ᵀ.
#[derive(Debug, Clone, Copy)]
struct Product {
    m: u64,
    n: u64,
    k: u64,
}

impl Product {
    fn values(self) -> Elements {
        Elements::product(&[self.n, self.k])
    }

    fn flop(self) -> Flop {
        Flop::new(2 * [self.m, self.n, self.k].map(u128::from).iter().product::<u128>())
    }
}

impl Device {
    /// Whether the device multiplies weights of `dtype`: by a table of its own, or like another
    /// format with a known cost of dequantisation.
    pub fn multiplies(&self, dtype: DType) -> bool {
        self.table(dtype).is_some() || self.kin(dtype).is_some()
    }

    /// The highest rate of products with weights of `dtype` among the points of its table, or of
    /// the table of the format that it is computed like.
    pub fn fastest_product(&self, dtype: DType) -> Option<Sourced<FlopPerSec>> {
        let kin = || self.kin(dtype).and_then(|kin| self.table(kin));
        self.table(dtype).or_else(kin)?.fastest()
    }

    /// The highest rate of products with weights in any of `formats`, of all GPUs of a group
    /// together. `None` where no such rate is known.
    pub fn peak_rate(&self, formats: impl IntoIterator<Item = DType>) -> Option<FlopPerSec> {
        let rates = formats.into_iter().filter_map(|dtype| Some(self.fastest_product(dtype)?.value));
        rates.max_by(FlopPerSec::total_cmp).map(|rate| rate * self.ranks() as f64)
    }

    /// The time of y[m, n] = x[m, k] · W[n, k]ᵀ with the weights in a memory that is `factor` times
    /// as fast as the device's own. See [`Device::gemm_time_from`].
    pub(super) fn product_time(
        &self,
        dtype: DType,
        [m, n, k]: [u64; 3],
        factor: Ratio,
    ) -> Result<Estimate, MissingRate> {
        if m == 0 || n == 0 || k == 0 {
            return Ok(Estimate::ZERO);
        }
        let product = Product { m, n, k };
        if let Some(estimate) = self.widened_product(dtype, product) {
            return Ok(estimate);
        }
        let details = &self.details;
        let is_unpacked = dtype.is_quantised() && !self.is_native(dtype);
        // An engine's rate of multiplying takes the place of that of 16 bits.
        let has_own_rate = is_unpacked && details.quantised_product.is_some();
        let known = if has_own_rate { Product { m: 1, ..product } } else { product };
        // An engine's rate of reading holds dequantisation.
        let own_read = match dtype.is_quantised() {
            true => details.quantised_read.as_ref().filter(|_| is_unpacked),
            false => details.float_read.as_ref(),
        };
        let cost = details.dequantisation.as_ref().filter(|_| own_read.is_none());
        let estimate = self.known_product(dtype, known, factor, cost)?;
        let read = own_read.map(|rate| dtype.matrix_bytes(n, k) / (rate.value * factor.get().min(1.0)));
        let estimate = match read.filter(|read| *read > estimate.time) {
            Some(read) => Estimate::with_default_band(read, Bound::Memory, Basis::Estimated),
            None => estimate,
        };
        Ok(self.within_product_rate(dtype, product, estimate))
    }

    /// What a library takes for products of 16 bits: quantised weights are read, written in 16 bits
    /// and read again, and then multiplied. `None` where the device has kernels of its own for so
    /// few rows, or for that format.
    fn widened_product(&self, dtype: DType, product: Product) -> Option<Estimate> {
        let Product { m, n, k } = product;
        let library = self.details.widened.as_ref().filter(|library| m >= library.from_rows.value)?;
        let is_wide = matches!(dtype, DType::F16 | DType::Bf16);
        if !is_wide && (!dtype.is_quantised() || self.is_native(dtype)) {
            return None;
        }
        let wide = DType::F16.matrix_bytes(n, k);
        let moved = if is_wide { wide } else { dtype.matrix_bytes(n, k) + wide * 2 };
        let computed = product.flop() / library.rate.value;
        let widening = moved / self.elementwise.value;
        // A product in 16 bits reads its weights while it computes.
        let time = if is_wide { computed.max(widening) } else { computed + widening };
        let bound = if computed > widening { Bound::Compute } else { Bound::Memory };
        Some(Estimate::with_default_band(time, bound, Basis::Estimated))
    }

    /// The estimate, or what an engine's own kernels take to multiply blocks. Few rows have kernels
    /// without tiles.
    fn within_product_rate(&self, dtype: DType, product: Product, estimate: Estimate) -> Estimate {
        let has_tiles = self.kind != DeviceKind::Gpu || product.m > VECTOR_ROWS;
        let filled = if has_tiles { self.filled_rows(product.m) } else { product.m as f64 };
        self.within_tile_rate(dtype, product, filled, estimate)
    }

    /// The product of several experts' matrices for `tokens` in all, `m` for each of them: tiles of
    /// an expert with few tokens are as large as those of one with many. `product` is without tiles
    /// for few rows.
    pub(super) fn in_tiles(
        &self,
        dtype: DType,
        [m, n, k]: [u64; 3],
        tokens: u64,
        product: Estimate,
    ) -> Estimate {
        let is_widened = self.details.widened.as_ref().is_some_and(|it| m >= it.from_rows.value);
        match is_widened {
            true => product,
            false => {
                let filled = self.filled_rows_of_experts(m, tokens);
                self.within_tile_rate(dtype, Product { m, n, k }, filled, product)
            }
        }
    }

    /// The rows that take as long at the full rate as `m` rows in tiles do. Unpacking a tile's
    /// weights takes as long as h of its rows, the number that reaches half of the rate where tiles
    /// are of any size: m + h. Where tiles have at most `tile_rows`, each has its own h.
    fn filled_rows(&self, m: u64) -> f64 {
        let Some(most) = &self.details.tile_rows else { return m as f64 + self.unpacking_rows() };
        m.div_ceil(most.value) as f64 * self.whole_tile(m, most.value)
    }

    /// The same for experts with `m` tokens each in the mean. How many rows a tile has depends on
    /// the `tokens` of all experts. The tokens of an expert are taken to be spread as an
    /// exponential, so that it needs 1 ÷ (1 − e^(−tile ÷ m)) tiles: one where it has few.
    fn filled_rows_of_experts(&self, m: u64, tokens: u64) -> f64 {
        let Some(most) = &self.details.tile_rows else { return m as f64 + self.unpacking_rows() };
        let tile = tile_for(tokens.max(m), most.value) as f64;
        let tiles = 1.0 / (1.0 - (-tile / m.max(1) as f64).exp());
        tiles * self.whole_tile(tokens.max(m), most.value)
    }

    /// A tile of a step of so many tokens, as rows at the rate of tiles of `most` rows.
    fn whole_tile(&self, tokens: u64, most: u64) -> f64 {
        let (unpacking, most_rows) = (self.unpacking_rows(), most as f64);
        (tile_for(tokens, most) as f64 + unpacking) * most_rows / (most_rows + unpacking)
    }

    fn unpacking_rows(&self) -> f64 {
        self.details.half_rate_rows.as_ref().map_or(0.0, |rows| rows.value as f64)
    }

    /// The estimate, or where it is longer the time of `filled` rows at the engine's rate of
    /// multiplying: FLOP ÷ (rate · the format's share · m ÷ filled). A CPU is never slower than by
    /// dot products, which unpack a block again for each row.
    fn within_tile_rate(&self, dtype: DType, product: Product, filled: f64, estimate: Estimate) -> Estimate {
        let details = &self.details;
        let Some(rate) = details.quantised_product.as_ref().filter(|_| dtype.is_quantised()) else {
            return estimate;
        };
        let share = details.quantised_formats.get(&dtype).map_or(1.0, |share| share.value.get());
        let rows = product.m as f64;
        let tiles = rate.value * (share * rows / filled);
        let dots = details.dequantisation.as_ref().filter(|cost| filled > rows && cost.overlaps);
        let dots = dots.map(|cost| FlopPerSec::new(2.0 * cost.rate.value.get() * share));
        let time = product.flop() / dots.map_or(tiles, |dots| tiles.max(dots));
        match time > estimate.time {
            true => Estimate::with_default_band(time, Bound::Compute, Basis::Estimated),
            false => estimate,
        }
    }

    /// The time of a product by the kernels that the rates were measured with, with this cost of
    /// dequantisation.
    fn known_product(
        &self,
        dtype: DType,
        product: Product,
        factor: Ratio,
        cost: Option<&Dequantisation>,
    ) -> Result<Estimate, MissingRate> {
        let Product { m, n, k } = product;
        // If reading the weights for m rows takes the time t at one rate, then at the other rate
        // factor · m rows take t, both for reading and for computing.
        let rows = ((m as f64 * factor.get()).round() as u64).max(1);
        if let Some(rates) = self.table(dtype) {
            let estimate = rates.time(rows, n, k).map(|estimate| estimate.shorter(factor));
            let estimate = estimate.ok_or_else(|| self.missing_gemm(dtype))?;
            let measured = matches!(rates.source, Provenance::Measured { .. });
            let dequantises = dtype.is_quantised() && !measured && !self.is_native(dtype);
            return Ok(match cost {
                Some(cost) if dequantises => {
                    dequantised(&estimate, cost, Dequantisation::weight(dtype), product.values())
                }
                _ => estimate,
            });
        }
        let kin = self.kin(dtype).ok_or_else(|| self.missing_gemm(dtype))?;
        let rates = self.table(kin).ok_or_else(|| self.missing_gemm(dtype))?;
        let like = like(rates, kin, dtype, Product { m: rows, ..product });
        let like = like.ok_or_else(|| self.missing_gemm(dtype))?.shorter(factor);
        let Some(cost) = cost else { return Ok(like) };
        // An integer kernel's own unpacking is part of its measured time.
        let own = if is_same_arithmetic(kin, dtype) { f64::INFINITY } else { Dequantisation::weight(kin) };
        let weight = (Dequantisation::weight(dtype) - own).max(0.0);
        Ok(dequantised(&like, cost, weight, product.values()))
    }

    /// The table of `dtype`, if it has points.
    pub(super) fn table(&self, dtype: DType) -> Option<&GemmRates> {
        self.gemm.get(&dtype).filter(|rates| !rates.points().is_empty())
    }

    /// The format that `dtype` is computed like. Without a known cost of dequantisation only
    /// measured integers stand for other blocks: their unpacking is in their time.
    fn kin(&self, dtype: DType) -> Option<DType> {
        let number = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
        if number || !dtype.holds_weights() {
            return None;
        }
        let cost = self.details.dequantisation.as_ref();
        let measured = |kin: &DType| {
            self.table(*kin).is_some_and(|rates| matches!(rates.source, Provenance::Measured { .. }))
        };
        let integer = if dtype.bits() > DType::Int4.bits() { DType::Int8 } else { DType::Int4 };
        let exact = (dtype == DType::Fp8Block && self.table(DType::Fp8).is_some()).then_some(DType::Fp8);
        // A GPU's integer products multiply integers without groups. A CPU widens 8-bit floats too.
        let widened = dtype.is_quantised() || dtype == DType::Fp8;
        let grouped = widened && self.kind != DeviceKind::Gpu;
        let integer = || Some(integer).filter(|kin| grouped && *kin != dtype && measured(kin));
        let wide = || {
            let wide = [DType::Bf16, DType::F16, DType::F32].into_iter();
            wide.into_iter().find(|kin| self.table(*kin).is_some() && kin.bits() >= dtype.bits())
        };
        let kin = match cost {
            Some(_) => exact.or_else(integer).or_else(wide),
            None => integer(),
        };
        kin.filter(|kin| *kin != dtype)
    }

    /// Whether the device multiplies the 4-bit floats of `dtype` as they lie.
    fn is_native(&self, dtype: DType) -> bool {
        matches!(dtype, DType::Mxfp4 | DType::Nvfp4) && self.table(dtype).is_some()
    }

    fn missing_gemm(&self, dtype: DType) -> MissingRate {
        MissingRate::new(self, "gemm", dtype, |d| self.table(d).is_some())
    }

    /// The time of attention over a cache in `kv`, which has no table, like one in 16 or 32 bits:
    /// its bytes where it is bound by them, with the cost of dequantisation joined.
    pub(super) fn attention_like_another(&self, kv: DType, shape: &AttentionShape) -> Option<Estimate> {
        let cost = self.details.dequantisation.as_ref().filter(|_| kv.holds_kv())?;
        let wide = [DType::Bf16, DType::F16, DType::F32].into_iter();
        let mut known = wide.filter(|kin| *kin != kv && kin.bits() >= kv.bits());
        let (kin, estimate) = known.find_map(|kin| Some((kin, self.attention.get(&kin)?.time(shape)?)))?;
        let ratio = match estimate.bound {
            Bound::Memory => kv.bits() / kin.bits(),
            Bound::Compute | Bound::Launch => 1.0,
        };
        let estimate = Estimate::with_default_band(estimate.time * ratio, estimate.bound, Basis::Estimated);
        Some(dequantised(&estimate, cost, Dequantisation::weight(kv), shape.kv_elements()))
    }

    /// The estimate of decode attention, or the time in which an engine's kernel reads a quantised
    /// cache for each query head. Latent caches, whose heads are wide, have kernels of their own.
    pub(super) fn read_by_heads(&self, kv: DType, shape: &AttentionShape, estimate: Estimate) -> Estimate {
        let concerned = kv.is_quantised() && shape.phase == Phase::Decode && shape.head_dim <= WIDEST_HEAD;
        let Some(rate) = self.details.cache_read_by_head.as_ref().filter(|_| concerned) else {
            return estimate;
        };
        let each = AttentionShape { kv_heads: shape.heads.max(shape.kv_heads), ..*shape };
        let time = kv.bytes(each.kv_elements()) / rate.value;
        match time > estimate.time {
            true => Estimate::with_default_band(time, Bound::Memory, Basis::Estimated),
            false => estimate,
        }
    }
}

/// Whether the two differ in their scales alone.
fn is_same_arithmetic(kin: DType, dtype: DType) -> bool {
    (kin, dtype) == (DType::Fp8, DType::Fp8Block)
}

/// The time of reading and multiplying weights of `dtype` on a device that takes `rates` for those
/// of `kin`.
fn like(rates: &GemmRates, kin: DType, dtype: DType, product: Product) -> Option<Estimate> {
    let Product { m, n, k } = product;
    let time = |m: u64| rates.time(m, n, k).map(|estimate| estimate.time);
    let (one, all) = (time(1)?, rates.time(m, n, k)?);
    let ratio = dtype.matrix_bytes(n, k).as_f64() / kin.matrix_bytes(n, k).as_f64();
    let read = one * ratio;
    let many = time(m.max(MANY_ROWS))? * (m.min(MANY_ROWS) as f64 / MANY_ROWS as f64);
    let saved = all.time - (one - read).max(Seconds::ZERO);
    let time = read.max(many).max(saved);
    let bound = if time > read { Bound::Compute } else { Bound::Memory };
    let bound = if all.bound == Bound::Launch { Bound::Launch } else { bound };
    Some(Estimate::with_default_band(time, bound, Basis::Estimated))
}

/// The estimate with the time of dequantisation.
fn dequantised(estimate: &Estimate, cost: &Dequantisation, weight: f64, values: Elements) -> Estimate {
    let own = cost.time(weight, values);
    let time = if cost.overlaps { estimate.time.max(own) } else { estimate.time + own };
    let bound = if own > estimate.time { Bound::Compute } else { estimate.bound };
    let longer = time - estimate.time;
    Estimate {
        time,
        low: estimate.low + longer,
        high: estimate.high + longer * 2.0,
        bound,
        basis: estimate.basis.max(Basis::Estimated),
    }
}
