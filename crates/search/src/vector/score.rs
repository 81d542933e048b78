//! Scores of vectors.
//!
//! | similarity | floats | bytes | bits |
//! |---|---|---|---|
//! | cosine | (1 + cos) / 2 | the same | not possible |
//! | dotProduct | (1 + product) / 2, at least 0 | 1/2 + product / (dimensions * 2^15) | not possible |
//! | euclidean | 1 / (1 + distance^2) | the same | (dimensions - differing bits) / dimensions |

use super::kernel::{differing_bits, distance_bytes, distance_floats, dot_bytes, dot_floats};
use super::{ElementType, Vector};
use crate::definition::Similarity;

/// A query's vector, prepared for comparisons with many others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Probe {
    pub(crate) similarity: Similarity,
    pub(crate) vector: Vector,
    /// The elements, if they are floats.
    pub(crate) floats: Vec<f32>,
    /// The length of the vector.
    pub(crate) length: f32,
}

/// Whether this similarity is defined for vectors of this type.
pub(crate) fn is_comparable(similarity: Similarity, element: ElementType) -> bool {
    element != ElementType::Bit || similarity == Similarity::Euclidean
}

/// The length of a vector. That of bits is not used.
pub(crate) fn length(vector: &Vector) -> f32 {
    match vector.element {
        ElementType::Float => dot_floats(&to_floats(&vector.bytes), &vector.bytes).sqrt(),
        ElementType::Byte => (dot_bytes(&vector.bytes, &vector.bytes) as f32).sqrt(),
        ElementType::Bit => 1.0,
    }
}

/// Whether an index with this similarity contains the vector: zero vectors have no angle.
pub(crate) fn is_indexable(similarity: Similarity, vector: &Vector) -> bool {
    is_comparable(similarity, vector.element)
        && (similarity != Similarity::Cosine
            || (length(vector) > 0.0 && length(vector).is_finite()))
}

/// The elements of a vector of floats.
pub(crate) fn to_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The score for a scalar product, or a cosine, of floats.
#[inline]
pub(crate) fn of_product(product: f32) -> f32 {
    ((1.0 + product) / 2.0).max(0.0)
}

/// The score for a scalar product of signed bytes.
#[inline]
pub(crate) fn of_bytes_product(product: i64, dimensions: usize) -> f32 {
    0.5 + product as f32 / (dimensions as f32 * 32_768.0)
}

/// The score for the square of a distance.
#[inline]
pub(crate) fn of_distance(square: f32) -> f32 {
    1.0 / (1.0 + square)
}

impl Probe {
    pub(crate) fn new(similarity: Similarity, vector: Vector) -> Probe {
        let floats = match vector.element {
            ElementType::Float => to_floats(&vector.bytes),
            ElementType::Byte | ElementType::Bit => Vec::new(),
        };
        Probe { similarity, length: length(&vector), floats, vector }
    }

    /// The score of a vector of the same type and number of dimensions. `length` is its length.
    #[inline]
    pub(crate) fn score(&self, other: &[u8], length: f32) -> f32 {
        let score = match self.vector.element {
            ElementType::Float => self.score_floats(other, length),
            ElementType::Byte => self.score_bytes(other, length),
            ElementType::Bit => {
                let bits = (self.vector.bytes.len() * 8) as f32;
                (bits - differing_bits(&self.vector.bytes, other) as f32) / bits
            }
        };
        // Sums of large floats may overflow; a score that is not a number has no place in an order.
        if score.is_nan() { 0.0 } else { score }
    }

    fn score_floats(&self, other: &[u8], length: f32) -> f32 {
        match self.similarity {
            Similarity::Cosine => {
                of_product(dot_floats(&self.floats, other) / (self.length * length))
            }
            Similarity::DotProduct => of_product(dot_floats(&self.floats, other)),
            Similarity::Euclidean => of_distance(distance_floats(&self.floats, other)),
        }
    }

    fn score_bytes(&self, other: &[u8], length: f32) -> f32 {
        let bytes = &self.vector.bytes;
        match self.similarity {
            Similarity::Cosine => {
                of_product(dot_bytes(bytes, other) as f32 / (self.length * length))
            }
            Similarity::DotProduct => of_bytes_product(dot_bytes(bytes, other), bytes.len()),
            Similarity::Euclidean => of_distance(distance_bytes(bytes, other) as f32),
        }
    }
}
