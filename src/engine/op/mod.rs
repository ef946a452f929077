//! Straight computations over slices. Each has its formula, shapes and the f64 reference that `tests/it/engine_ops.rs` meets.
pub mod attention;
pub mod dot;
pub mod elementwise;
pub mod linear;

/// Runs `portable` compiled for AVX2 and FMA where the CPU has them, and as it stands elsewhere.
///
/// The body is an `#[inline(always)]` function, so both forms are the same source; fused multiply-adds round differently, which is the
/// only difference between machines.
macro_rules! simd_dispatch {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:ident) => {
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn wide($($arg: $ty),*) $(-> $ret)? {
                    $body($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    // SAFETY: the two features the function needs were just found.
                    return unsafe { wide($($arg),*) };
                }
            }
            $body($($arg),*)
        }
    };
}
pub(crate) use simd_dispatch;
