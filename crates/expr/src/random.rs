//! Random numbers for `$rand`, `$sample` and `$sampleRate`.

/// A number from 0 (inclusive) to 1 (exclusive).
pub fn random_unit() -> f64 {
    rand::random()
}
