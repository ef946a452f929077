//! A register of f32 lanes, so that a kernel is written once and compiled for every instruction set.
//!
//! Every dot product of the engine adds in one order: lane `l` of 16 takes the products `l, l+16, l+32, ...`, then the 16 lanes are
//! folded in halves (8, 4, 2, 1). AVX2 holds the 16 lanes in two registers and AVX-512 in one, so both give the same bits; the portable
//! form multiplies and adds with two roundings and differs from them in the last places.
use std::ops::{Index, IndexMut};

/// Lanes of a dot product.
pub(super) const LANES: usize = 16;

/// Weights decoded at once: the block of the quantised formats.
pub(super) const BLOCK: usize = 32;

/// One register.
///
/// # Safety
/// Every method needs the instructions of its implementor on this CPU, and pointers valid for what it reads or writes, at any alignment.
pub(super) unsafe trait Vector: Copy {
    /// f32 lanes.
    const WIDTH: usize;
    /// Registers of [`LANES`] lanes.
    const PARTS: usize = LANES / Self::WIDTH;
    /// Whether there are 32 architectural registers and not 16, for the size of register tiles.
    const MANY: bool;
    /// [`LANES`] lanes.
    type Sum: Copy + IndexMut<usize, Output = Self>;
    /// [`BLOCK`] decoded weights.
    type Block: Copy + Index<usize, Output = Self>;

    unsafe fn zeros() -> Self::Sum;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn load_bf16(from: *const u16) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// `self * b + c`.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// The same for one value.
    unsafe fn scalar_mul_add(a: f32, b: f32, c: f32) -> f32;
    /// The lanes folded in halves.
    unsafe fn fold(sum: Self::Sum) -> f32;

    /// Asks for a cache line that will be read soon; any address will do.
    fn prefetch(address: *const u8);

    unsafe fn f32_block(from: *const u8) -> Self::Block;
    unsafe fn f16_block(from: *const u8) -> Self::Block;
    unsafe fn bf16_block(from: *const u8) -> Self::Block;
    unsafe fn q8_0_block(from: *const u8) -> Self::Block;
    unsafe fn q4_1_block(from: *const u8) -> Self::Block;
}

/// Eight lanes in plain Rust.
#[derive(Clone, Copy)]
pub(super) struct Portable([f32; 8]);

/// Exact for every finite half, subnormals too; infinities and NaN, which no sound weight file holds, come out finite.
#[inline(always)]
fn half_to_f32(bits: u16) -> f32 {
    let magnitude = f32::from_bits(u32::from(bits & 0x7FFF) << 13) * f32::from_bits(0x7780_0000);
    f32::from_bits(magnitude.to_bits() | (u32::from(bits & 0x8000) << 16))
}

impl Portable {
    #[inline(always)]
    unsafe fn block(value: impl Fn(usize) -> f32) -> [Self; 4] {
        let mut block = [Self([0.0; 8]); 4];
        for (part, register) in block.iter_mut().enumerate() {
            for (lane, v) in register.0.iter_mut().enumerate() {
                *v = value(part * 8 + lane);
            }
        }
        block
    }
}

/// Reads one value inside the block that the caller vouches for; only for use in an `unsafe` block.
macro_rules! read {
    ($from:expr, $at:expr, $ty:ty) => {
        $from.add($at).cast::<$ty>().read_unaligned()
    };
}

// SAFETY: plain Rust needs no instructions beyond the target's.
unsafe impl Vector for Portable {
    const WIDTH: usize = 8;
    const MANY: bool = false;
    type Sum = [Self; 2];
    type Block = [Self; 4];

    #[inline(always)]
    unsafe fn zeros() -> [Self; 2] {
        [Self([0.0; 8]); 2]
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; 8])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: eight floats, as the caller vouches.
        Self(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: eight values, as the caller vouches.
        Self(unsafe { from.cast::<[u16; 8]>().read_unaligned() }.map(|bits| f32::from_bits(u32::from(bits) << 16)))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: eight floats, as the caller vouches.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        let mut out = c.0;
        for ((o, a), b) in out.iter_mut().zip(self.0).zip(b.0) {
            *o += a * b;
        }
        Self(out)
    }
    #[inline(always)]
    unsafe fn scalar_mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
    #[inline(always)]
    unsafe fn fold(sum: [Self; 2]) -> f32 {
        let mut a = sum[0].0;
        for (a, b) in a.iter_mut().zip(sum[1].0) {
            *a += b;
        }
        for width in [4, 2, 1] {
            for i in 0..width {
                a[i] += a[i + width];
            }
        }
        a[0]
    }
    #[inline(always)]
    fn prefetch(_: *const u8) {}
    #[inline(always)]
    unsafe fn f32_block(from: *const u8) -> [Self; 4] {
        // SAFETY: the block's 128 bytes.
        unsafe { Self::block(|i| f32::from_bits(u32::from_le(read!(from, i * 4, u32)))) }
    }
    #[inline(always)]
    unsafe fn f16_block(from: *const u8) -> [Self; 4] {
        // SAFETY: the block's 64 bytes.
        unsafe { Self::block(|i| half_to_f32(u16::from_le(read!(from, i * 2, u16)))) }
    }
    #[inline(always)]
    unsafe fn bf16_block(from: *const u8) -> [Self; 4] {
        // SAFETY: the block's 64 bytes.
        unsafe { Self::block(|i| f32::from_bits(u32::from(u16::from_le(read!(from, i * 2, u16))) << 16)) }
    }
    #[inline(always)]
    unsafe fn q8_0_block(from: *const u8) -> [Self; 4] {
        // SAFETY: inside the block that the caller vouches for.
        let d = half_to_f32(u16::from_le(unsafe { read!(from, 0, u16) }));
        // SAFETY: the block's 34 bytes.
        unsafe { Self::block(|i| d * f32::from(read!(from, 2 + i, i8))) }
    }
    #[inline(always)]
    unsafe fn q4_1_block(from: *const u8) -> [Self; 4] {
        // SAFETY: inside the block that the caller vouches for.
        let d = half_to_f32(u16::from_le(unsafe { read!(from, 0, u16) }));
        // SAFETY: inside the block that the caller vouches for.
        let m = half_to_f32(u16::from_le(unsafe { read!(from, 2, u16) }));
        // SAFETY: the block's 20 bytes.
        unsafe { Self::block(|i| d * f32::from((read!(from, 4 + i % 16, u8) >> (i / 16 * 4)) & 15) + m) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_half_converts_exactly() {
        for bits in 0..=u16::MAX {
            let want = half::f16::from_bits(bits);
            if want.is_finite() {
                assert_eq!(half_to_f32(bits).to_bits(), want.to_f32().to_bits(), "{bits:#06x}");
            }
        }
    }
}
