//! The form of durations and sizes in files: plain numbers, with the unit in the key.

/// Durations as numbers of seconds, for fields whose names end in `_s`.
pub(crate) mod in_seconds {
    use hwprofiles::Seconds;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Seconds, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.get())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
        f64::deserialize(deserializer).map(Seconds::new)
    }
}

/// Optional durations as numbers of seconds or null.
pub(crate) mod maybe_in_seconds {
    use hwprofiles::Seconds;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Option<Seconds>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(Seconds::get).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Seconds>, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.map(Seconds::new))
    }
}

/// Lists with one element per line of JSON, so that people can read and diff them.
pub(crate) mod line_by_line {
    use serde::ser::Error;
    use serde::{Serialize, Serializer};
    use serde_json::value::to_raw_value;

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        rows: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let lines: Result<Vec<_>, _> = rows.iter().map(to_raw_value).collect();
        lines.map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Sizes as numbers of bytes, for fields whose names end in `_bytes`.
pub(crate) mod in_bytes {
    use hwprofiles::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(size: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(size.get())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        u64::deserialize(deserializer).map(Bytes::new)
    }
}

/// Optional sizes as numbers of bytes or null.
pub(crate) mod maybe_in_bytes {
    use hwprofiles::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(size: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
        size.map(Bytes::get).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Bytes::new))
    }
}
