//! Which vector instructions run. Found once; holding an [`Isa`] proves that the CPU has them.

/// A set of vector instructions this CPU has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// Plain Rust, compiled for the target's base instructions.
    pub const PORTABLE: Self = Self(Kind::Portable);

    /// Every set this CPU has, the widest last.
    pub fn available() -> Vec<Self> {
        let mut found = vec![Self::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx2") && has!("fma") && has!("f16c") {
                found.push(Self(Kind::Avx2));
                if has!("avx512f") {
                    found.push(Self(Kind::Avx512));
                }
            }
        }
        found
    }

    /// The widest set this CPU has.
    pub fn widest() -> Self {
        Self::available().pop().unwrap_or(Self::PORTABLE)
    }

    /// Name for logs and reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2+fma+f16c",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512f",
        }
    }

    pub(super) fn kind(self) -> Kind {
        self.0
    }
}

/// Defines `unsafe fn name(isa, ...)` that runs the generic `body::<V>` compiled for the instructions of `isa`.
macro_rules! by_isa {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident($($arg:ident: $ty:ty),* $(,)?) = $body:ident) => {
        $(#[$meta])*
        $vis unsafe fn $name(isa: $crate::engine::op::isa::Isa, $($arg: $ty),*) {
            use $crate::engine::op::isa::Kind;
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2($($arg: $ty),*) {
                // SAFETY: passed on from the caller; the instructions are enabled here.
                unsafe { $body::<$crate::engine::op::vector_x86::Avx2>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma,f16c")]
            unsafe fn avx512($($arg: $ty),*) {
                // SAFETY: passed on from the caller; the instructions are enabled here.
                unsafe { $body::<$crate::engine::op::vector_x86::Avx512>($($arg),*) }
            }
            // SAFETY: passed on from the caller; an `Isa` is only made for a CPU that has it.
            unsafe {
                match isa.kind() {
                    Kind::Portable => $body::<$crate::engine::op::vector::Portable>($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    Kind::Avx2 => avx2($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    Kind::Avx512 => avx512($($arg),*),
                }
            }
        }
    };
}
pub(super) use by_isa;
