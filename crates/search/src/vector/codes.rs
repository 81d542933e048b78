//! Scalar quantization: a vector of floats as one signed byte for each dimension.
//!
//! A code is the element divided by the step, rounded, where the step is the greatest magnitude of
//! the vector divided by 127. The product of two vectors is about the product of their codes and
//! their steps; distances and cosines follow from it with the exact lengths. A search compares the
//! codes and compares its best candidates again in full precision.

use super::kernel::dot_bytes;
use super::score::{Probe, of_distance, of_product};
use crate::definition::Similarity;

/// The codes of a vector, and the step between them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Codes {
    pub(crate) codes: Vec<u8>,
    pub(crate) step: f32,
}

impl Codes {
    pub(crate) fn of(floats: &[f32]) -> Codes {
        let greatest = floats.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
        let step = greatest / 127.0;
        if step == 0.0 || !step.is_finite() {
            return Codes { codes: vec![0; floats.len()], step: 0.0 };
        }
        let code = |number: &f32| (number / step).round() as i8 as u8;
        Codes { codes: floats.iter().map(code).collect(), step }
    }

    /// The approximate score of a vector with these codes, step and length.
    #[inline]
    pub(crate) fn score(&self, probe: &Probe, codes: &[u8], step: f32, length: f32) -> f32 {
        let product = dot_bytes(&self.codes, codes) as f32 * self.step * step;
        let score = match probe.similarity {
            Similarity::Cosine => of_product(product / (probe.length * length)),
            Similarity::DotProduct => of_product(product),
            Similarity::Euclidean => {
                let squares = probe.length * probe.length + length * length;
                of_distance((squares - 2.0 * product).max(0.0))
            }
        };
        if score.is_nan() { 0.0 } else { score }
    }
}
