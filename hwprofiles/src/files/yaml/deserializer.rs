//! The one deserializer of documents: from a tree of values to any type.

use super::node::{Node, NodeKind, Scalar, ScalarTag};
use super::problem::{Kind, Problem};
use super::scalar::{number, overflows, truth, whole};
use serde::Deserializer;
use serde::de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};

impl Node<'_> {
    /// Reads a map; `keys` are those that it may have, where they are known.
    fn map<'de, V: Visitor<'de>>(
        &'de self,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match &self.kind {
            NodeKind::Map(entries) => visitor.visit_map(Pairs { rest: entries, value: None }),
            NodeKind::Scalar(scalar) if scalar.is_null() => {
                visitor.visit_map(Pairs { rest: &[], value: None })
            }
            NodeKind::Empty => Err(Problem::of_node(Kind::Empty, self)),
            _ => Err(Problem::of_node(Kind::NotMap(keys), self)),
        }
    }

    fn scalar(&self, otherwise: Kind) -> Result<&Scalar<'_>, Problem> {
        match &self.kind {
            NodeKind::Scalar(scalar) => Ok(scalar),
            NodeKind::Empty => Err(Problem::of_node(Kind::Empty, self)),
            _ => Err(Problem::of_node(otherwise, self)),
        }
    }

    /// The whole number that it holds, within what `T` can hold.
    fn whole<T: TryFrom<i128>>(&self, at_least_zero: bool) -> Result<T, Problem> {
        let refuse = || Problem::of_node(Kind::NotWhole(at_least_zero), self);
        let scalar = self.scalar(Kind::NotWhole(at_least_zero))?;
        whole(&scalar.text).and_then(|number| T::try_from(number).ok()).ok_or_else(refuse)
    }

    fn number(&self) -> Result<f64, Problem> {
        let scalar = self.scalar(Kind::NotNumber)?;
        number(&scalar.text).ok_or_else(|| Problem::of_node(Kind::NotNumber, self))
    }
}

macro_rules! whole_numbers {
    ($($deserialize:ident $visit:ident $type:ty, $at_least_zero:literal;)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
            visitor.$visit(self.whole::<$type>($at_least_zero)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for &'de Node<'_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match &self.kind {
            NodeKind::Map(_) => self.deserialize_map(visitor),
            NodeKind::List(_) => self.deserialize_seq(visitor),
            NodeKind::Empty => visitor.visit_unit(),
            NodeKind::Scalar(scalar) => match scalar.tag {
                _ if scalar.is_null() => visitor.visit_unit(),
                ScalarTag::Text => visitor.visit_borrowed_str(&scalar.text),
                ScalarTag::Bool => self.deserialize_bool(visitor),
                _ => self.visit_untyped(scalar, visitor),
            },
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let scalar = self.scalar(Kind::NotBool)?;
        visitor.visit_bool(truth(&scalar.text).ok_or_else(|| Problem::of_node(Kind::NotBool, self))?)
    }

    whole_numbers! {
        deserialize_i8 visit_i8 i8, false;
        deserialize_i16 visit_i16 i16, false;
        deserialize_i32 visit_i32 i32, false;
        deserialize_i64 visit_i64 i64, false;
        deserialize_i128 visit_i128 i128, false;
        deserialize_u8 visit_u8 u8, true;
        deserialize_u16 visit_u16 u16, true;
        deserialize_u32 visit_u32 u32, true;
        deserialize_u64 visit_u64 u64, true;
        deserialize_u128 visit_u128 u128, true;
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_f32(self.number()? as f32)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_f64(self.number()?)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let scalar = self.scalar(Kind::NotText)?;
        match scalar.is_null() {
            true => Err(Problem::of_node(Kind::NullText, self)),
            false => visitor.visit_borrowed_str(&scalar.text),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_borrowed_str(&self.scalar(Kind::NotText)?.text)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_any(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match &self.kind {
            NodeKind::Empty => visitor.visit_none(),
            NodeKind::Scalar(scalar) if scalar.is_null() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_any(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match &self.kind {
            NodeKind::List(items) => visitor.visit_seq(Items { rest: items, index: 0 }),
            NodeKind::Scalar(scalar) if scalar.is_null() => visitor.visit_seq(Items { rest: &[], index: 0 }),
            NodeKind::Empty => Err(Problem::of_node(Kind::Empty, self)),
            _ => Err(Problem::of_node(Kind::NotList, self)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.map(&[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.map(fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match &self.kind {
            NodeKind::Scalar(_) => visitor.visit_enum(Variant { name: self, content: None }),
            NodeKind::Map(entries) => match &entries[..] {
                [(name, content)] => visitor.visit_enum(Variant { name, content: Some(content) }),
                _ => {
                    let words = variants.join(", ");
                    Err(Problem::new(Kind::Custom(format!("write one key here, of {words}")))
                        .placed(self.place))
                }
            },
            NodeKind::Empty => Err(Problem::of_node(Kind::Empty, self)),
            NodeKind::List(_) => Err(Problem::of_node(Kind::NotText, self)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_unit()
    }
}

impl<'t> Node<'t> {
    /// A plain scalar where the type does not say what it is: a truth value, a number, or a text.
    fn visit_untyped<'de, V: Visitor<'de>>(
        &'de self,
        scalar: &'de Scalar<'t>,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let text = &*scalar.text;
        if let Some(truth) = truth(text) {
            return visitor.visit_bool(truth);
        }
        let is_negative = text.trim_start().starts_with('-');
        match whole(text) {
            Some(number) if is_negative && i64::try_from(number).is_ok() => {
                return visitor.visit_i64(number as i64);
            }
            Some(number) if !is_negative && u64::try_from(number).is_ok() => {
                return visitor.visit_u64(number as u64);
            }
            _ => {}
        }
        match number(text) {
            Some(number) if number.is_finite() => visitor.visit_f64(number),
            None if !overflows(text) => visitor.visit_borrowed_str(text),
            _ => Err(Problem::of_node(Kind::NotFinite, self)),
        }
    }
}

/// The items of a list that are still to be read.
struct Items<'de, 't> {
    rest: &'de [Node<'t>],
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        let Some((item, rest)) = self.rest.split_first() else { return Ok(None) };
        let index = self.index;
        (self.rest, self.index) = (rest, index + 1);
        let placed = |problem: Problem| problem.placed(item.place).under(&index.to_string());
        seed.deserialize(item).map(Some).map_err(placed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// The entries of a map that are still to be read, and the value of the key that was read last.
struct Pairs<'de, 't> {
    rest: &'de [(Node<'t>, Node<'t>)],
    value: Option<&'de (Node<'t>, Node<'t>)>,
}

impl<'de> MapAccess<'de> for Pairs<'de, '_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        let Some((entry, rest)) = self.rest.split_first() else { return Ok(None) };
        (self.rest, self.value) = (rest, Some(entry));
        let (key, value) = entry;
        let placed = |problem: Problem| match problem.kind() {
            Kind::UnknownVariant(..) => problem.placed(key.place),
            Kind::UnknownField(..) => problem.placed(key.place).under(key.text().unwrap_or_default()),
            _ => problem.placed(value.place).under(key.text().unwrap_or_default()),
        };
        seed.deserialize(key).map(Some).map_err(placed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        let Some((key, value)) = self.value.take() else {
            return Err(Problem::custom("a value was asked for before its key"));
        };
        let placed = |problem: Problem| problem.placed(value.place).under(key.text().unwrap_or_default());
        seed.deserialize(value).map_err(placed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// One variant of an enum: its name, and its content where it is written `{name: content}`.
struct Variant<'de, 't> {
    name: &'de Node<'t>,
    content: Option<&'de Node<'t>>,
}

impl<'de, 't> EnumAccess<'de> for Variant<'de, 't> {
    type Error = Problem;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Problem> {
        let value = seed.deserialize(self.name).map_err(|problem| problem.placed(self.name.place))?;
        Ok((value, self))
    }
}

impl<'de, 't> Variant<'de, 't> {
    /// Reads the content with `read`; refuses a name alone.
    fn content<T>(self, read: impl FnOnce(&'de Node<'t>) -> Result<T, Problem>) -> Result<T, Problem> {
        let name = self.name.text().unwrap_or_default();
        let Some(content) = self.content else {
            let message = format!("'{name}' needs its keys: write {{{name}: {{key: value}}}}");
            return Err(Problem::custom(message).placed(self.name.place));
        };
        read(content).map_err(|problem| problem.placed(content.place).under(name))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de, '_> {
    type Error = Problem;

    fn unit_variant(self) -> Result<(), Problem> {
        match self.content {
            Some(content) if !matches!(&content.kind, NodeKind::Scalar(scalar) if scalar.is_null()) => {
                let name = self.name.text().unwrap_or_default();
                let message = format!("'{name}' has no keys: write the word alone");
                Err(Problem::custom(message).placed(content.place).under(name))
            }
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Problem> {
        self.content(|content| seed.deserialize(content))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, Problem> {
        self.content(|content| content.deserialize_seq(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.content(|content| content.deserialize_map(visitor))
    }
}
