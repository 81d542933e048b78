//! Vectors in BSON: an array of numbers, or binary data of subtype 9.
//!
//! ```text
//!  binary data of subtype 9     dtype | padding | elements
//!                               27      0         f32, little-endian
//!                               03      0         i8
//!                               10      0         8 dimensions a byte, the first in the highest bit
//! ```
//! The padding is the number of unused bits of the last byte. Vectors of bits with padding are not
//! indexed, since their number of dimensions is not a multiple of 8.

use mayfly_value::{RawDoc, RawValue, ty};

/// The type of a vector's elements. Only vectors of the same type are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ElementType {
    /// 32-bit floats.
    Float,
    /// Signed bytes.
    Byte,
    /// Single bits.
    Bit,
}

impl ElementType {
    /// All types, in the order of their numbers in files.
    pub(crate) const ALL: [ElementType; 3] =
        [ElementType::Float, ElementType::Byte, ElementType::Bit];

    /// Bytes of a vector with this many dimensions.
    pub(crate) fn bytes(self, dimensions: usize) -> usize {
        match self {
            ElementType::Float => dimensions * 4,
            ElementType::Byte => dimensions,
            ElementType::Bit => dimensions / 8,
        }
    }
}

/// A vector: its type, and its elements as files contain them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Vector {
    pub(crate) element: ElementType,
    pub(crate) bytes: Vec<u8>,
}

/// Why a value is no vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAVector {
    /// The value is of another type.
    OtherType,
    /// An item of the array is not a number, or a number that no 32-bit float can represent.
    Item(usize),
    /// The binary data is not a vector.
    Malformed,
}

impl Vector {
    /// A vector of 32-bit floats.
    #[cfg(test)]
    pub(crate) fn floats(numbers: &[f32]) -> Vector {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Vector { element: ElementType::Float, bytes }
    }

    /// The number of dimensions.
    pub(crate) fn dimensions(&self) -> usize {
        match self.element {
            ElementType::Float => self.bytes.len() / 4,
            ElementType::Byte => self.bytes.len(),
            ElementType::Bit => self.bytes.len() * 8,
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// The reason, if it is not a vector.
    pub(crate) fn read(value: RawValue<'_>) -> Result<Vector, NotAVector> {
        match value {
            RawValue::Array(items) => read_array(items),
            RawValue::Binary { subtype: 9, bytes } => read_binary(bytes),
            _ => Err(NotAVector::OtherType),
        }
    }
}

fn read_array(items: RawDoc<'_>) -> Result<Vector, NotAVector> {
    let mut bytes = Vec::with_capacity(items.as_bytes().len() / 2);
    for (at, element) in items.iter().enumerate() {
        let number = match element.value() {
            RawValue::Double(number) => number as f32,
            RawValue::Int32(number) => number as f32,
            RawValue::Int64(number) => number as f32,
            _ => return Err(NotAVector::Item(at)),
        };
        if !number.is_finite() {
            return Err(NotAVector::Item(at));
        }
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    Ok(Vector { element: ElementType::Float, bytes })
}

fn read_binary(data: &[u8]) -> Result<Vector, NotAVector> {
    let (&[dtype, padding], elements) = data.split_first_chunk().ok_or(NotAVector::Malformed)?;
    let element = match dtype {
        0x27 => ElementType::Float,
        0x03 => ElementType::Byte,
        0x10 => ElementType::Bit,
        _ => return Err(NotAVector::Malformed),
    };
    if padding != 0 || (element == ElementType::Float && elements.len() % 4 != 0) {
        return Err(NotAVector::Malformed);
    }
    let is_finite = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes).is_finite();
    if element == ElementType::Float
        && let Some(at) = elements.as_chunks::<4>().0.iter().position(|bytes| !is_finite(bytes))
    {
        return Err(NotAVector::Item(at));
    }
    Ok(Vector { element, bytes: elements.to_vec() })
}

/// Whether a value of this type may be a vector.
pub(crate) fn may_be_vector(type_byte: u8) -> bool {
    matches!(type_byte, ty::ARRAY | ty::BINARY)
}
