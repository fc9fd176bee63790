//! The number format of a class of matrices: one, or an exact mixture of several.

use hwprofiles::{Basis, Bytes, DType, Elements, Estimate, Seconds};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::Range;

/// The formats that one mixture may hold.
const MOST: usize = 8;

/// The number format of a class of matrices: one, or several with their shares of the values.
///
/// A mixture says how many values of the whole class each format has, up to a common factor. Every
/// matrix of the class counts as if it were mixed alike, so the class has exactly its bytes, and a
/// single matrix has the mean of its class.
///
/// In files it is a word, or a mapping from words to shares: `{q4_k: 27, q6_k: 5}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightFormat {
    /// In the order of [`DType`]; only those with a share count.
    formats: [DType; MOST],
    /// Without a common factor; zeros at the end.
    shares: [u64; MOST],
}

impl WeightFormat {
    /// One format.
    pub const fn one_of(dtype: DType) -> Self {
        Self { formats: [dtype; MOST], shares: [1, 0, 0, 0, 0, 0, 0, 0] }
    }

    /// The mixture in which each format has that many values. A format may be named several times.
    ///
    /// # Errors
    /// There are no values, or more than eight formats.
    pub fn from_values(values: impl IntoIterator<Item = (DType, u64)>) -> Result<Self, String> {
        let mut parts: Vec<(DType, u64)> = Vec::new();
        for (dtype, count) in values.into_iter().filter(|(_, count)| *count > 0) {
            match parts.iter_mut().find(|(known, _)| *known == dtype) {
                Some((_, sum)) => *sum = sum.saturating_add(count),
                None => parts.push((dtype, count)),
            }
        }
        if parts.len() > MOST {
            return Err(format!("{} formats in one class: at most {MOST} are mixed", parts.len()));
        }
        let Some(&(first, _)) = parts.first() else {
            return Err("a mixture without values: give each format a share above zero".to_owned());
        };
        parts.sort_unstable();
        let divisor = parts.iter().fold(0, |divisor, &(_, count)| common_divisor(divisor, count));
        let mut mixture = Self { formats: [first; MOST], shares: [0; MOST] };
        for (at, (dtype, count)) in parts.into_iter().enumerate() {
            (mixture.formats[at], mixture.shares[at]) = (dtype, count / divisor);
        }
        // Unused places are alike, so that equal mixtures compare equal.
        let last = mixture.formats[0];
        let unused = mixture.shares.iter().position(|share| *share == 0).unwrap_or(MOST);
        mixture.formats[unused..].fill(last);
        Ok(mixture)
    }

    /// The format of all values; `None` for a mixture.
    pub fn one(self) -> Option<DType> {
        (self.shares[1] == 0).then_some(self.formats[0])
    }

    /// Each format with its share; the shares sum to 1.
    pub fn parts(self) -> impl Iterator<Item = (DType, f64)> {
        let all = self.total() as f64;
        self.weighted().map(move |(dtype, share)| (dtype, share as f64 / all))
    }

    /// The format of most values.
    pub fn main(self) -> DType {
        let most = self.weighted().max_by_key(|&(dtype, share)| (share, std::cmp::Reverse(dtype)));
        most.map_or(self.formats[0], |(dtype, _)| dtype)
    }

    /// The mixture with `change` applied to each format.
    #[must_use]
    pub fn map(self, mut change: impl FnMut(DType) -> DType) -> Self {
        let changed = self.weighted().map(|(dtype, share)| (change(dtype), share));
        Self::from_values(changed.collect::<Vec<_>>()).unwrap_or(self)
    }

    /// Bits of one value, its share of scales included.
    pub fn bits(self) -> f64 {
        self.parts().map(|(dtype, share)| dtype.bits() * share).sum()
    }

    /// Bytes of a matrix of `rows` × `columns`, scales and padding of the last block included.
    pub fn matrix_bytes(self, rows: u64, columns: u64) -> Bytes {
        match self.one() {
            Some(dtype) => dtype.matrix_bytes(rows, columns),
            None => self.bytes_of_rows(&(0..rows), |dtype| dtype.matrix_bytes(1, columns)),
        }
    }

    /// Bytes of `rows` rows, each of which takes `row` bytes in one format. The bytes of adjacent
    /// ranges sum to those of the whole.
    pub fn bytes_of_rows(self, rows: &Range<u64>, row: impl Fn(DType) -> Bytes) -> Bytes {
        if let Some(dtype) = self.one() {
            return row(dtype) * rows.end.saturating_sub(rows.start);
        }
        let one: u128 = self.weighted().map(|(d, share)| u128::from(row(d).get()) * u128::from(share)).sum();
        let up_to = |row: u64| u128::from(row).saturating_mul(one) / u128::from(self.total());
        let bytes = up_to(rows.end).saturating_sub(up_to(rows.start));
        Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Bytes of a vector of `elements` values.
    pub fn bytes(self, elements: Elements) -> Bytes {
        self.matrix_bytes(1, elements.get())
    }

    /// The mean of `time` over the formats, by their shares: the time of a matrix whose values are
    /// mixed so. Its basis is the weakest of them, its bound that of the longest part.
    ///
    /// # Errors
    /// The first error of `time`.
    pub fn mean_time<E>(self, mut time: impl FnMut(DType) -> Result<Estimate, E>) -> Result<Estimate, E> {
        if let Some(dtype) = self.one() {
            return time(dtype);
        }
        let (mut sum, mut longest) = (Estimate::ZERO, Seconds::ZERO);
        for (dtype, share) in self.parts() {
            let Estimate { time, low, high, bound, basis } = time(dtype)?;
            let own = time * share;
            let bound = if own > longest { bound } else { sum.bound };
            longest = longest.max(own);
            let basis: Basis = sum.basis.max(basis);
            let (low, high) = (sum.low + low * share, sum.high + high * share);
            sum = Estimate { time: sum.time + own, low, high, bound, basis };
        }
        Ok(sum)
    }

    /// Each format with its whole share.
    pub(crate) fn weighted(self) -> impl Iterator<Item = (DType, u64)> {
        self.formats.into_iter().zip(self.shares).filter(|(_, share)| *share > 0)
    }

    fn total(self) -> u64 {
        self.shares.iter().fold(0, |sum: u64, share| sum.saturating_add(*share)).max(1)
    }
}

/// The greatest common divisor; that of 0 and a number is the number.
fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

impl From<DType> for WeightFormat {
    fn from(dtype: DType) -> Self {
        Self::one_of(dtype)
    }
}

impl PartialEq<DType> for WeightFormat {
    /// Whether all values have this format.
    fn eq(&self, dtype: &DType) -> bool {
        self.one() == Some(*dtype)
    }
}

impl fmt::Display for WeightFormat {
    /// As files write it: `q4_k`, or `{q4_k: 27, q6_k: 5}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.one() {
            Some(dtype) => dtype.fmt(f),
            None => {
                let parts: Vec<_> =
                    self.weighted().map(|(dtype, share)| format!("{dtype}: {share}")).collect();
                f.pad(&format!("{{{}}}", parts.join(", ")))
            }
        }
    }
}

impl Serialize for WeightFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.one() {
            Some(dtype) => dtype.serialize(serializer),
            None => serializer.collect_map(self.weighted()),
        }
    }
}

impl<'de> Deserialize<'de> for WeightFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WeightFormatVisitor)
    }
}

/// Reads a word, or a mapping from words to shares.
struct WeightFormatVisitor;

impl<'de> Visitor<'de> for WeightFormatVisitor {
    type Value = WeightFormat;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number format, or several with their shares, as {q4_k: 27, q6_k: 5}")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<WeightFormat, E> {
        word.parse().map(WeightFormat::one_of).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightFormat, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = map.next_entry::<DType, u64>()? {
            parts.push(part);
        }
        WeightFormat::from_values(parts).map_err(de::Error::custom)
    }
}
