//! The vectors of a new segment, which its graph compares with each other.

use super::ElementType;
use super::kernel::{distance_bytes, distance_stored, dot_bytes, dot_stored, prefetch};
use super::score::{of_bytes_product, of_distance, of_product};
use crate::definition::Similarity;

/// Vectors of one field and one type, by their places.
pub(crate) struct Space<'a> {
    similarity: Similarity,
    element: ElementType,
    /// The elements and the length of each vector.
    vectors: Vec<(&'a [u8], f32)>,
    /// The codes of all vectors, and the step of each, if the field is quantised.
    codes: Option<(&'a [u8], Vec<f32>)>,
}

impl<'a> Space<'a> {
    pub(crate) fn new(
        similarity: Similarity,
        element: ElementType,
        vectors: Vec<(&'a [u8], f32)>,
        codes: Option<(&'a [u8], Vec<f32>)>,
    ) -> Space<'a> {
        let codes = codes.map(|(codes, mut steps)| {
            if similarity == Similarity::Cosine {
                // With the length in the step, a score needs one number of each vector.
                let vectors = steps.iter_mut().zip(&vectors);
                vectors.for_each(|(step, vector)| *step /= vector.1);
            }
            (codes, steps)
        });
        Space { similarity, element, vectors, codes }
    }

    pub(crate) fn element(&self) -> ElementType {
        self.element
    }

    /// The number of vectors.
    pub(crate) fn len(&self) -> usize {
        self.vectors.len()
    }

    /// The score of two vectors. Quantised vectors are compared by their codes.
    #[inline]
    pub(crate) fn score(&self, left: usize, right: usize) -> f32 {
        let score = match (&self.codes, self.element) {
            (Some((codes, steps)), _) => self.score_codes(codes, steps, left, right),
            (None, ElementType::Float) => self.score_floats(left, right),
            (None, ElementType::Byte | ElementType::Bit) => self.score_bytes(left, right),
        };
        if score.is_nan() { 0.0 } else { score }
    }

    /// Loads a vector that is compared soon.
    #[inline]
    pub(crate) fn prefetch(&self, place: usize) {
        prefetch(match &self.codes {
            Some((codes, steps)) => codes_of(codes, steps, place),
            None => self.vectors[place].0,
        });
    }

    #[inline]
    fn score_codes(&self, codes: &[u8], steps: &[f32], left: usize, right: usize) -> f32 {
        let product = dot_bytes(codes_of(codes, steps, left), codes_of(codes, steps, right)) as f32
            * steps[left]
            * steps[right];
        match self.similarity {
            Similarity::Cosine | Similarity::DotProduct => of_product(product),
            Similarity::Euclidean => {
                let (left, right) = (self.vectors[left].1, self.vectors[right].1);
                of_distance((left * left + right * right - 2.0 * product).max(0.0))
            }
        }
    }

    #[inline]
    fn score_floats(&self, left: usize, right: usize) -> f32 {
        let ((left, left_length), (right, right_length)) =
            (self.vectors[left], self.vectors[right]);
        match self.similarity {
            Similarity::Cosine => {
                of_product(dot_stored(left, right) / (left_length * right_length))
            }
            Similarity::DotProduct => of_product(dot_stored(left, right)),
            Similarity::Euclidean => of_distance(distance_stored(left, right)),
        }
    }

    #[inline]
    fn score_bytes(&self, left: usize, right: usize) -> f32 {
        let ((left, left_length), (right, right_length)) =
            (self.vectors[left], self.vectors[right]);
        match self.similarity {
            Similarity::Cosine => {
                of_product(dot_bytes(left, right) as f32 / (left_length * right_length))
            }
            Similarity::DotProduct => of_bytes_product(dot_bytes(left, right), left.len()),
            Similarity::Euclidean => of_distance(distance_bytes(left, right) as f32),
        }
    }
}

/// The codes of the vector at a place.
#[inline]
fn codes_of<'c>(codes: &'c [u8], steps: &[f32], place: usize) -> &'c [u8] {
    let dimensions = codes.len() / steps.len().max(1);
    &codes[place * dimensions..(place + 1) * dimensions]
}
