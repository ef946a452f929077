//! Straight computations over slices. Each has its formula, shapes and the f64 reference that `tests/it/engine_ops.rs` meets.
pub mod attention;
pub mod buffer;
pub mod dot;
pub mod elementwise;
pub mod isa;
pub mod linear;
mod vector;
#[cfg(target_arch = "x86_64")]
mod vector_x86;

/// Runs a body compiled for AVX2 where the CPU has it, and as it stands elsewhere.
///
/// The body is an `#[inline(always)]` function of plain Rust, which never fuses a multiplication with an addition: both forms give the same
/// bits.
macro_rules! simd_dispatch {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:ident) => {
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn wide($($arg: $ty),*) $(-> $ret)? {
                    $body($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the feature the function needs was just found.
                    return unsafe { wide($($arg),*) };
                }
            }
            $body($($arg),*)
        }
    };
}
pub(crate) use simd_dispatch;
