//! From stored bytes to f32.
//!
//! Little endian, scales are IEEE halves (ggml's layouts):
//! - `Q8_0`, 34 bytes for 32 values: `d`, `i8[32]`; `w = d * q`.
//! - `Q4_1`, 20 bytes for 32 values: `d`, `m`, 16 bytes of nibbles; `w = d * q + m`. Low nibbles are elements 0..16, high ones 16..32.
use half::f16;

use super::matrix::WeightFormat;

/// Decodes whole blocks. Panics unless `bytes` holds exactly `out.len()` values of `format`.
pub(crate) fn dequantise(format: WeightFormat, bytes: &[u8], out: &mut [f32]) {
    let blocks = out.len() / format.block();
    assert!(
        out.len().is_multiple_of(format.block()) && bytes.len() == blocks * format.block_bytes(),
        "{} bytes of {} are not {} values",
        bytes.len(),
        format.name(),
        out.len()
    );
    match format {
        WeightFormat::F32 => f32_values(bytes, out),
        WeightFormat::F16 => f16_values(bytes, out),
        WeightFormat::BF16 => bf16_values(bytes, out),
        WeightFormat::Q8_0 => q8_0_blocks(bytes, out),
        WeightFormat::Q4_1 => q4_1_blocks(bytes, out),
    }
}

fn f32_values(bytes: &[u8], out: &mut [f32]) {
    for (value, raw) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*raw);
    }
}

fn bf16_values(bytes: &[u8], out: &mut [f32]) {
    for (value, raw) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        // Exact, NaN payloads included; `half` tests each value for NaN, which does not vectorise.
        *value = f32::from_bits(u32::from(u16::from_le_bytes(*raw)) << 16);
    }
}

fn f16_values(bytes: &[u8], out: &mut [f32]) {
    use half::slice::HalfFloatSliceExt;
    // `half` converts whole slices with F16C where the CPU has it; its one-value conversion tests for the CPU each time.
    let mut halves = [f16::ZERO; 64];
    for (values, raws) in out.chunks_mut(64).zip(bytes.chunks(128)) {
        let halves = &mut halves[..values.len()];
        for (half, raw) in halves.iter_mut().zip(raws.as_chunks::<2>().0) {
            *half = f16::from_le_bytes(*raw);
        }
        halves.convert_to_f32_slice(values);
    }
}

fn q8_0_blocks(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<34>().0) {
        let d = f16::from_le_bytes([block[0], block[1]]).to_f32();
        for (value, &q) in values.iter_mut().zip(&block[2..]) {
            *value = d * f32::from(q as i8);
        }
    }
}

fn q4_1_blocks(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<20>().0) {
        let d = f16::from_le_bytes([block[0], block[1]]).to_f32();
        let m = f16::from_le_bytes([block[2], block[3]]).to_f32();
        let (low, high) = values.split_at_mut(16);
        for ((low, high), &q) in low.iter_mut().zip(high).zip(&block[4..]) {
            *low = d * f32::from(q & 15) + m;
            *high = d * f32::from(q >> 4) + m;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random bytes and what gguf-py makes of them, bit by bit (`tests/oracle/dequantise.py`).
    #[test]
    fn every_format_gives_the_bits_that_gguf_py_gives() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../../tests/fixtures/engine/dequantise.json"))
                .expect("fixture is JSON");
        for format in WeightFormat::ALL {
            let golden = &golden[format.name()];
            let hex = golden["bytes"].as_str().expect("hex digits");
            let bytes: Vec<u8> =
                (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect();
            let expected: Vec<u32> = golden["bits"]
                .as_array()
                .expect("list")
                .iter()
                .map(|bits| bits.as_u64().expect("bits") as u32)
                .collect();
            assert!(expected.len() >= 192, "{} values", expected.len());
            let mut out = vec![0.0; expected.len()];
            dequantise(format, &bytes, &mut out);
            let out: Vec<u32> = out.iter().map(|value| value.to_bits()).collect();
            assert_eq!(out, expected, "{format:?}");
        }
    }

    #[test]
    #[should_panic(expected = "68 bytes of Q8_0 are not 32 values")]
    fn a_wrong_length_is_refused() {
        dequantise(WeightFormat::Q8_0, &[0; 68], &mut [0.0; 32]);
    }
}
