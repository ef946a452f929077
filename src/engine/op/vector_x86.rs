//! Registers of x86-64.
//!
//! The bodies are `inline(always)`, so they are compiled inside a function that has the instructions enabled (`by_isa!`). The quantised
//! values are the same bits as in the portable form: `d * q` is exact (11 bits by at most 8), so fusing `+ m` rounds once in both.
use std::arch::x86_64::*;

use super::vector::Vector;

/// Eight lanes with AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256);

/// Sixteen lanes with AVX-512F.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

/// Folds eight lanes by 4, 2, 1.
#[inline(always)]
unsafe fn fold8(v: __m256) -> f32 {
    // SAFETY: the caller has AVX.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}

/// Two halves at `from` as f32 in lanes 0 and 1.
#[inline(always)]
unsafe fn two_halves(from: *const u8) -> __m128 {
    // SAFETY: four readable bytes and F16C, as the caller vouches.
    unsafe { _mm_cvtph_ps(_mm_cvtsi32_si128(from.cast::<i32>().read_unaligned())) }
}

/// Eight bytes at `from`, which an extending load takes straight from memory.
#[inline(always)]
unsafe fn eight_bytes(from: *const u8) -> __m128i {
    // SAFETY: eight readable bytes, as the caller vouches.
    unsafe { _mm_cvtsi64_si128(from.cast::<i64>().read_unaligned()) }
}

/// One half at `from`, in every lane of four.
#[inline(always)]
unsafe fn one_half(from: *const u8) -> __m128 {
    // SAFETY: two readable bytes and F16C, as the caller vouches.
    unsafe { _mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(from.cast::<u16>().read_unaligned()))) }
}

// SAFETY: made only for CPUs with AVX2, FMA and F16C (`Isa::available`).
unsafe impl Vector for Avx2 {
    const WIDTH: usize = 8;
    const MANY: bool = false;
    type Sum = [Self; 2];
    type Block = [Self; 4];

    #[inline(always)]
    unsafe fn zeros() -> [Self; 2] {
        // SAFETY: AVX.
        [Self(unsafe { _mm256_setzero_ps() }); 2]
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: AVX.
        Self(unsafe { _mm256_set1_ps(value) })
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: AVX; eight floats.
        Self(unsafe { from.cast::<__m256>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: AVX2; eight values.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(from.cast::<__m128i>().read_unaligned());
            Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide)))
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: AVX; eight floats.
        unsafe { to.cast::<__m256>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: FMA.
        Self(unsafe { _mm256_fmadd_ps(self.0, b.0, c.0) })
    }
    #[inline(always)]
    unsafe fn scalar_mul_add(a: f32, b: f32, c: f32) -> f32 {
        // SAFETY: FMA.
        unsafe { _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c))) }
    }
    #[inline(always)]
    unsafe fn fold(sum: [Self; 2]) -> f32 {
        // SAFETY: AVX.
        unsafe { fold8(_mm256_add_ps(sum[0].0, sum[1].0)) }
    }
    #[inline(always)]
    fn prefetch(address: *const u8) {
        // SAFETY: SSE, which x86-64 always has; a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[inline(always)]
    unsafe fn f32_block(from: *const u8) -> [Self; 4] {
        let p = from.cast::<f32>();
        // SAFETY: 128 bytes; x86 is little endian and loads at any alignment.
        unsafe { [Self::load(p), Self::load(p.add(8)), Self::load(p.add(16)), Self::load(p.add(24))] }
    }
    #[inline(always)]
    unsafe fn f16_block(from: *const u8) -> [Self; 4] {
        // SAFETY: 64 bytes; F16C.
        unsafe {
            let at = |i: usize| from.add(i * 16).cast::<__m128i>().read_unaligned();
            [
                Self(_mm256_cvtph_ps(at(0))),
                Self(_mm256_cvtph_ps(at(1))),
                Self(_mm256_cvtph_ps(at(2))),
                Self(_mm256_cvtph_ps(at(3))),
            ]
        }
    }
    #[inline(always)]
    unsafe fn bf16_block(from: *const u8) -> [Self; 4] {
        let p = from.cast::<u16>();
        // SAFETY: 64 bytes.
        unsafe {
            [Self::load_bf16(p), Self::load_bf16(p.add(8)), Self::load_bf16(p.add(16)), Self::load_bf16(p.add(24))]
        }
    }
    #[inline(always)]
    unsafe fn q8_0_block(from: *const u8) -> [Self; 4] {
        // SAFETY: 34 bytes; AVX2 and F16C.
        unsafe {
            let d = _mm256_broadcastss_ps(one_half(from));
            let at =
                |i: usize| Self(_mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes(from.add(i))))));
            [at(2), at(10), at(18), at(26)]
        }
    }
    #[inline(always)]
    unsafe fn q4_1_block(from: *const u8) -> [Self; 4] {
        // SAFETY: 20 bytes; AVX2, FMA and F16C.
        unsafe {
            let dm = two_halves(from);
            let d = _mm256_broadcastss_ps(dm);
            let m = _mm256_broadcastss_ps(_mm_movehdup_ps(dm));
            let mask = _mm256_set1_epi32(15);
            let (a, b) =
                (_mm256_cvtepu8_epi32(eight_bytes(from.add(4))), _mm256_cvtepu8_epi32(eight_bytes(from.add(12))));
            let value = |codes| Self(_mm256_fmadd_ps(d, _mm256_cvtepi32_ps(codes), m));
            [
                value(_mm256_and_si256(a, mask)),
                value(_mm256_and_si256(b, mask)),
                value(_mm256_srli_epi32::<4>(a)),
                value(_mm256_srli_epi32::<4>(b)),
            ]
        }
    }
}

// SAFETY: made only for CPUs with AVX-512F, FMA and F16C (`Isa::available`).
unsafe impl Vector for Avx512 {
    const WIDTH: usize = 16;
    const MANY: bool = true;
    type Sum = [Self; 1];
    type Block = [Self; 2];

    #[inline(always)]
    unsafe fn zeros() -> [Self; 1] {
        // SAFETY: AVX-512F.
        [Self(unsafe { _mm512_setzero_ps() })]
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: AVX-512F.
        Self(unsafe { _mm512_set1_ps(value) })
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: AVX-512F; sixteen floats.
        Self(unsafe { _mm512_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: AVX-512F; sixteen values.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(from.cast::<__m256i>().read_unaligned());
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: AVX-512F; sixteen floats.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: AVX-512F.
        Self(unsafe { _mm512_fmadd_ps(self.0, b.0, c.0) })
    }
    #[inline(always)]
    unsafe fn scalar_mul_add(a: f32, b: f32, c: f32) -> f32 {
        // SAFETY: FMA.
        unsafe { _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c))) }
    }
    #[inline(always)]
    unsafe fn fold(sum: [Self; 1]) -> f32 {
        // SAFETY: AVX-512F.
        unsafe {
            let v = sum[0].0;
            let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v)));
            fold8(_mm256_add_ps(_mm512_castps512_ps256(v), high))
        }
    }
    #[inline(always)]
    fn prefetch(address: *const u8) {
        // SAFETY: SSE, which x86-64 always has; a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[inline(always)]
    unsafe fn f32_block(from: *const u8) -> [Self; 2] {
        let p = from.cast::<f32>();
        // SAFETY: 128 bytes.
        unsafe { [Self::load(p), Self::load(p.add(16))] }
    }
    #[inline(always)]
    unsafe fn f16_block(from: *const u8) -> [Self; 2] {
        // SAFETY: 64 bytes.
        unsafe {
            let at = |i: usize| from.add(i).cast::<__m256i>().read_unaligned();
            let (low, high) = (at(0), at(32));
            [Self(_mm512_cvtph_ps(low)), Self(_mm512_cvtph_ps(high))]
        }
    }
    #[inline(always)]
    unsafe fn bf16_block(from: *const u8) -> [Self; 2] {
        let p = from.cast::<u16>();
        // SAFETY: 64 bytes.
        unsafe { [Self::load_bf16(p), Self::load_bf16(p.add(16))] }
    }
    #[inline(always)]
    unsafe fn q8_0_block(from: *const u8) -> [Self; 2] {
        // SAFETY: 34 bytes.
        unsafe {
            let d = _mm512_broadcastss_ps(one_half(from));
            let low = _mm512_cvtepi8_epi32(from.add(2).cast::<__m128i>().read_unaligned());
            let high = _mm512_cvtepi8_epi32(from.add(18).cast::<__m128i>().read_unaligned());
            [Self(_mm512_mul_ps(d, _mm512_cvtepi32_ps(low))), Self(_mm512_mul_ps(d, _mm512_cvtepi32_ps(high)))]
        }
    }
    #[inline(always)]
    unsafe fn q4_1_block(from: *const u8) -> [Self; 2] {
        // The sixteen values a block can hold fit one register: a nibble is looked up, not converted.
        // SAFETY: 20 bytes.
        unsafe {
            let dm = two_halves(from);
            let d = _mm512_broadcastss_ps(dm);
            let m = _mm512_broadcastss_ps(_mm_movehdup_ps(dm));
            let codes =
                _mm512_setr_ps(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0);
            let table = _mm512_fmadd_ps(d, codes, m);
            let bytes = _mm512_cvtepu8_epi32(from.add(4).cast::<__m128i>().read_unaligned());
            // The permutation looks at the low four bits of an index only.
            [
                Self(_mm512_permutexvar_ps(bytes, table)),
                Self(_mm512_permutexvar_ps(_mm512_srli_epi32::<4>(bytes), table)),
            ]
        }
    }
}
