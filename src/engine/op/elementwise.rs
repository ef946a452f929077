//! RMSNorm, rotary embedding, SwiGLU, softmax.
use super::simd_dispatch;
use crate::engine::weights::RopePairs;

/// Lanes of partial sums: fixed, so that a sum has the same order on every machine.
const LANES: usize = 8;

#[inline(always)]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane += v * v;
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|v| v * v).sum::<f32>()
}

#[inline(always)]
fn rms_norm_body(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let scale = 1.0 / (sum_of_squares(x) / x.len() as f32 + eps).sqrt();
    for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * w;
    }
}

simd_dispatch! {
    /// RMSNorm of one row.
    ///
    /// `out[d] = x[d] / sqrt(mean_d(x[d]^2) + eps) * weight[d]`; `x`, `out`, `weight`: `[dim]`. Sums in f32 over 8 lanes.
    /// Source: Zhang & Sennrich 2019, arXiv:1910.07467.
    pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = rms_norm_body
}

/// Cosines and sines of every position: `[positions][head_dim / 2]` pairs.
///
/// `angle(p, j) = p * theta^(-2j / head_dim)`, in f64 before rounding. Source: Su et al. 2021, arXiv:2104.09864.
#[derive(Debug, Clone)]
pub struct RopeTable {
    half: usize,
    cos_sin: Vec<(f32, f32)>,
}

impl RopeTable {
    /// A table for positions below `positions`.
    pub fn new(positions: usize, head_dim: usize, theta: f32) -> Self {
        let half = head_dim / 2;
        let frequencies: Vec<f64> =
            (0..half).map(|j| f64::from(theta).powf(-2.0 * j as f64 / head_dim as f64)).collect();
        let cos_sin = (0..positions)
            .flat_map(|p| frequencies.iter().map(move |f| (p as f64 * f).sin_cos()))
            .map(|(sin, cos)| (cos as f32, sin as f32))
            .collect();
        Self { half, cos_sin }
    }

    /// Bytes of a table.
    pub fn bytes(positions: usize, head_dim: usize) -> usize {
        positions * (head_dim / 2) * size_of::<(f32, f32)>()
    }

    /// Turns one head at `position` in place. `head`: `[head_dim]`.
    ///
    /// `Interleaved` turns `(2j, 2j+1)`, `Halves` turns `(j, j + head_dim/2)`.
    pub fn rotate(&self, head: &mut [f32], position: usize, pairs: RopePairs) {
        let row = &self.cos_sin[position * self.half..(position + 1) * self.half];
        match pairs {
            RopePairs::Interleaved => {
                for ([a, b], &(cos, sin)) in head.as_chunks_mut::<2>().0.iter_mut().zip(row) {
                    (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                }
            }
            RopePairs::Halves => {
                let (low, high) = head.split_at_mut(self.half);
                for ((a, b), &(cos, sin)) in low.iter_mut().zip(high).zip(row) {
                    (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                }
            }
        }
    }
}

/// `e^x` within 2 ulp for `x` in [-87, 88], clamped outside: Cody-Waite reduction and a polynomial of degree 6, free of branches so that
/// loops over it become vector code. Coefficients: Cephes `expf`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.3, 88.3);
    // Adding and taking away 1.5 * 2^23 rounds to the nearest integer.
    const ROUND: f32 = 12_582_912.0;
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    let y = p * r * r + r + 1.0;
    // The low bits of `rounded` are n itself: a cast would saturate, which is slow in vectors.
    y * f32::from_bits(rounded.to_bits().wrapping_add(127) << 23)
}

#[inline(always)]
fn swiglu_body(gate: &mut [f32], up: &[f32]) {
    for (g, &u) in gate.iter_mut().zip(up) {
        *g = *g / (1.0 + exp(-*g)) * u;
    }
}

simd_dispatch! {
    /// SwiGLU: `gate = silu(gate) * up` with `silu(x) = x / (1 + e^-x)`. Both `[n]`. Source: Shazeer 2020, arXiv:2002.05202.
    pub fn swiglu(gate: &mut [f32], up: &[f32]) = swiglu_body
}

#[inline(always)]
fn add_body(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

simd_dispatch! {
    /// `x += y`, both `[n]`.
    pub fn add(x: &mut [f32], y: &[f32]) = add_body
}

#[inline(always)]
fn maximum_body(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane = if v > *lane { v } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

simd_dispatch! {
    /// The largest of `values`, NaN left out; minus infinity when there is none.
    pub fn maximum(values: &[f32]) -> f32 = maximum_body
}

#[inline(always)]
fn exponentials_body(values: &mut [f32], max: f32, scale: f32) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (chunks, rest) = values.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (sum, v) in sums.iter_mut().zip(chunk) {
            *v = exp((*v - max) * scale);
            *sum += *v;
        }
    }
    let mut sum = sums.iter().sum::<f32>();
    for v in rest {
        *v = exp((*v - max) * scale);
        sum += *v;
    }
    sum
}

simd_dispatch! {
    /// `v = e^(scale (v - max))` in place, `[n]`; returns their sum over 8 lanes.
    pub fn exponentials(values: &mut [f32], max: f32, scale: f32) -> f32 = exponentials_body
}

/// Turns scores `[n]` into `e^(scale (s - max s))` in place and returns their sum; the caller divides. `n >= 1`, `scale > 0`.
pub fn softmax_unnormalised(scores: &mut [f32], scale: f32) -> f32 {
    let max = maximum(scores);
    exponentials(scores, max, scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_ulp_of_f64() {
        let mut worst = 0.0f64;
        for i in -870_000..=880_000i32 {
            let x = i as f32 / 10_000.0;
            let want = f64::from(x).exp();
            let ulp = f64::from(f32::from_bits((want as f32).to_bits() + 1)) - f64::from(want as f32);
            worst = worst.max((f64::from(exp(x)) - want).abs() / ulp);
        }
        assert!(worst <= 2.0, "{worst} ulp");
    }

    #[test]
    fn rms_norm_meets_its_formula_in_f64() {
        let x: Vec<f32> = (0..577).map(|i| ((i * 37 % 101) as f32 - 50.0) / 13.0).collect();
        let w: Vec<f32> = (0..577).map(|i| 0.5 + (i % 7) as f32 / 10.0).collect();
        let mut out = vec![0.0; 577];
        rms_norm(&x, &w, 1e-5, &mut out);
        let mean = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / 577.0;
        for ((o, &x), &w) in out.iter().zip(&x).zip(&w) {
            let want = f64::from(x) / (mean + 1e-5).sqrt() * f64::from(w);
            assert!((f64::from(*o) - want).abs() < 1e-6 * want.abs().max(1.0));
        }
    }

    #[test]
    fn rotation_keeps_lengths_and_turns_by_the_angle() {
        let table = RopeTable::new(100, 64, 10_000.0);
        for (pairs, second) in [(RopePairs::Interleaved, 1), (RopePairs::Halves, 32)] {
            let mut head = vec![0.0f32; 64];
            head[0] = 1.0;
            table.rotate(&mut head, 7, pairs);
            assert!(
                (f64::from(head[0]) - 7f64.cos()).abs() < 1e-7 && (f64::from(head[second]) - 7f64.sin()).abs() < 1e-7
            );
        }
    }

    #[test]
    fn softmax_meets_f64() {
        let s: Vec<f32> = (0..77).map(|i| (i * 29 % 41) as f32 / 3.0 - 6.0).collect();
        let mut got = s.clone();
        let sum = softmax_unnormalised(&mut got, 0.125);
        let max = s.iter().fold(f32::MIN, |a, &b| a.max(b));
        let e: Vec<f64> = s.iter().map(|&v| (f64::from(v - max) * 0.125).exp()).collect();
        let total: f64 = e.iter().sum();
        for (g, e) in got.iter().zip(&e) {
            assert!((f64::from(g / sum) - e / total).abs() < 1e-7);
        }
    }

    #[test]
    fn swiglu_meets_f64() {
        let g: Vec<f32> = (-40..40).map(|i| i as f32 / 4.0).collect();
        let u = vec![1.5f32; 80];
        let mut out = g.clone();
        swiglu(&mut out, &u);
        for (o, &g) in out.iter().zip(&g) {
            let want = f64::from(g) / (1.0 + (-f64::from(g)).exp()) * 1.5;
            assert!((f64::from(*o) - want).abs() < 1e-6 * want.abs().max(1e-3), "{g}: {o} against {want}");
        }
    }
}
