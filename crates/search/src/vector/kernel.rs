//! The loops over vectors. They are written so that the compiler makes vector instructions of them:
//! sixteen independent sums, and no branch inside.
//!
//! On x86-64 each loop is compiled a second time for processors with AVX2 and FMA, and the
//! processor is asked once. The sums differ from those of the portable loops in their last bits.

/// Sums that are computed side by side.
const LANES: usize = 16;

/// A pair of loops: the portable one, and the same code for a newer processor.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident($left:ident: $lt:ty, $right:ident: $rt:ty) -> $out:ty $body:block) => {
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($left: $lt, $right: $rt) -> $out {
            #[inline(always)]
            fn portable($left: $lt, $right: $rt) -> $out $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn with_avx2($left: $lt, $right: $rt) -> $out {
                    portable($left, $right)
                }
                if has_avx2() {
                    #[allow(unsafe_code, reason = "the processor has the features of the function")]
                    // SAFETY: `has_avx2` is true only on processors with AVX2 and FMA.
                    return unsafe { with_avx2($left, $right) };
                }
            }
            portable($left, $right)
        }
    };
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

/// Multiplies and adds as one operation where the loop is compiled for FMA.
#[inline(always)]
fn multiply_add(left: f32, right: f32, sum: f32) -> f32 {
    if cfg!(target_feature = "fma") { left.mul_add(right, sum) } else { left * right + sum }
}

#[inline(always)]
fn load(bytes: &[u8; 4 * LANES]) -> [f32; LANES] {
    let (numbers, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|at| f32::from_le_bytes(numbers[at]))
}

/// The sum of `combine` over all pairs of two vectors of floats.
#[inline(always)]
fn fold_floats(left: &[f32], right: &[u8], combine: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let (left_blocks, left_rest) = left.as_chunks::<LANES>();
    let (right_blocks, right_rest) = right.as_chunks::<{ 4 * LANES }>();
    let mut sums = [0.0_f32; LANES];
    for (left, right) in left_blocks.iter().zip(right_blocks) {
        let right = load(right);
        for at in 0..LANES {
            sums[at] = combine(left[at], right[at], sums[at]);
        }
    }
    let mut total = sums.iter().sum();
    for (left, right) in left_rest.iter().zip(right_rest.as_chunks::<4>().0) {
        total = combine(*left, f32::from_le_bytes(*right), total);
    }
    total
}

/// The sum of `combine` over all pairs of two vectors of floats in files.
#[inline(always)]
fn fold_stored(left: &[u8], right: &[u8], combine: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let (left_blocks, left_rest) = left.as_chunks::<{ 4 * LANES }>();
    let (right_blocks, right_rest) = right.as_chunks::<{ 4 * LANES }>();
    let mut sums = [0.0_f32; LANES];
    for (left, right) in left_blocks.iter().zip(right_blocks) {
        let (left, right) = (load(left), load(right));
        for at in 0..LANES {
            sums[at] = combine(left[at], right[at], sums[at]);
        }
    }
    let mut total = sums.iter().sum();
    let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    for (left, right) in left_rest.as_chunks::<4>().0.iter().zip(right_rest.as_chunks::<4>().0) {
        total = combine(number(left), number(right), total);
    }
    total
}

kernel! {
    /// The scalar product of a vector of floats and one in a file.
    dot_floats(left: &[f32], right: &[u8]) -> f32 {
        fold_floats(left, right, multiply_add)
    }
}

kernel! {
    /// The scalar product of two vectors of floats in files.
    dot_stored(left: &[u8], right: &[u8]) -> f32 {
        fold_stored(left, right, multiply_add)
    }
}

kernel! {
    /// The square of the distance between two vectors of floats in files.
    distance_stored(left: &[u8], right: &[u8]) -> f32 {
        fold_stored(left, right, |left, right, sum| {
            let difference = left - right;
            multiply_add(difference, difference, sum)
        })
    }
}

kernel! {
    /// The square of the distance between a vector of floats and one in a file.
    distance_floats(left: &[f32], right: &[u8]) -> f32 {
        fold_floats(left, right, |left, right, sum| {
            let difference = left - right;
            multiply_add(difference, difference, sum)
        })
    }
}

/// The sum of `combine` over all pairs of two vectors of signed bytes.
#[inline(always)]
fn fold_bytes(left: &[u8], right: &[u8], combine: impl Fn(i16, i16) -> i32) -> i64 {
    // A sum over 8,192 dimensions is at most 8,192 * 255^2, which a 32-bit integer can represent.
    let mut total = 0_i32;
    for (left, right) in left.iter().zip(right) {
        total += combine(i16::from(*left as i8), i16::from(*right as i8));
    }
    i64::from(total)
}

/// The scalar product of two vectors of signed bytes, of at most 8,192 dimensions.
#[inline]
pub(crate) fn dot_bytes(left: &[u8], right: &[u8]) -> i64 {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        #[allow(unsafe_code, reason = "the processor has the features of the function")]
        // SAFETY: `has_avx2` is true only on processors with AVX2.
        return unsafe { avx2::dot_bytes(left, right) };
    }
    dot_bytes_portable(left, right)
}

#[inline]
fn dot_bytes_portable(left: &[u8], right: &[u8]) -> i64 {
    fold_bytes(left, right, |left, right| i32::from(left) * i32::from(right))
}

/// Asks the processor to load the beginning of a vector, which is compared soon. The rest follows,
/// since processors load what is read in order.
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64).take(12) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[allow(unsafe_code, reason = "a prefetch reads nothing")]
        // SAFETY: the pointer is one of the slice, and the instruction has no effect on memory.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// The loop that compilers do not make wide instructions of.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_loadu_si128, _mm_shuffle_epi32,
        _mm256_add_epi32, _mm256_castsi256_si128, _mm256_cvtepi8_epi16, _mm256_extracti128_si256,
        _mm256_madd_epi16, _mm256_setzero_si256,
    };

    #[target_feature(enable = "avx2")]
    pub(super) fn dot_bytes(left: &[u8], right: &[u8]) -> i64 {
        let (left_blocks, left_rest) = left.as_chunks::<32>();
        let (right_blocks, right_rest) = right.as_chunks::<32>();
        let (mut first, mut second) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for (left, right) in left_blocks.iter().zip(right_blocks) {
            let (left, right) = (left.as_chunks::<16>().0, right.as_chunks::<16>().0);
            first = _mm256_add_epi32(first, _mm256_madd_epi16(widen(&left[0]), widen(&right[0])));
            second = _mm256_add_epi32(second, _mm256_madd_epi16(widen(&left[1]), widen(&right[1])));
        }
        let sums = _mm256_add_epi32(first, second);
        let half = _mm256_extracti128_si256::<1>(sums);
        let sums = _mm_add_epi32(_mm256_castsi256_si128(sums), half);
        let sums = _mm_add_epi32(sums, _mm_shuffle_epi32::<0b1110>(sums));
        let sums = _mm_add_epi32(sums, _mm_shuffle_epi32::<0b0001>(sums));
        i64::from(_mm_cvtsi128_si32(sums)) + super::dot_bytes_portable(left_rest, right_rest)
    }

    /// Sixteen signed bytes as 16-bit numbers.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn widen(bytes: &[u8; 16]) -> __m256i {
        #[allow(unsafe_code, reason = "the load reads the bytes of the array")]
        // SAFETY: the pointer is valid for 16 bytes, and the load needs no alignment.
        let bytes = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        _mm256_cvtepi8_epi16(bytes)
    }
}

kernel! {
    /// The square of the distance between two vectors of signed bytes.
    distance_bytes(left: &[u8], right: &[u8]) -> i64 {
        fold_bytes(left, right, |left, right| {
            let difference = i32::from(left - right);
            difference * difference
        })
    }
}

kernel! {
    /// The number of bits that differ.
    differing_bits(left: &[u8], right: &[u8]) -> u32 {
        let (left_words, left_rest) = left.as_chunks::<8>();
        let (right_words, right_rest) = right.as_chunks::<8>();
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let pairs = left_words.iter().zip(right_words);
        let total: u32 = pairs.map(|(left, right)| (word(left) ^ word(right)).count_ones()).sum();
        let pairs = left_rest.iter().zip(right_rest);
        total + pairs.map(|(left, right)| (left ^ right).count_ones()).sum::<u32>()
    }
}
