//! Memory of the kernels: buffers that begin at a cache line, and slices that several threads write in disjoint parts.
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

/// Bytes of a cache line, and of the widest register: a load that crosses lines costs two.
const LINE: usize = 64;

/// Zeroed values whose first one lies on a cache line. The system gives the memory when it is first written.
pub struct Buffer<T> {
    values: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy + Default> Buffer<T> {
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Self
    where
        Vec<T>: FromZeros,
    {
        let values = <Vec<T> as FromZeros>::zeros(len + LINE / size_of::<T>());
        let start = values.as_ptr().align_offset(LINE).min(LINE / size_of::<T>());
        Self { values, start, len }
    }

    /// Bytes a buffer of `len` values takes.
    pub fn bytes(len: usize) -> usize {
        len * size_of::<T>() + LINE
    }
}

/// Vectors whose zeros come straight from the system (`calloc`), untouched.
pub trait FromZeros {
    /// `len` zeros.
    fn zeros(len: usize) -> Self;
}

impl FromZeros for Vec<f32> {
    fn zeros(len: usize) -> Self {
        vec![0.0; len]
    }
}

impl FromZeros for Vec<u16> {
    fn zeros(len: usize) -> Self {
        vec![0; len]
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.values[self.start..self.start + self.len]
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[self.start..self.start + self.len]
    }
}

/// A slice whose disjoint parts are written by the tasks of one parallel region.
pub struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: every access is `unsafe` and promises that no two threads touch the same part.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// The whole of `slice`.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), lifetime: PhantomData }
    }

    /// The values in `range`. Panics when it reaches past the slice.
    ///
    /// # Safety
    /// No other part that is alive overlaps `range`.
    #[allow(clippy::mut_from_ref)] // the caller's promise stands in for the borrow checker
    pub unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: inside the slice, and nobody else's by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// A pointer to value `at`, for a kernel that writes some columns of several rows up to value `end`.
    pub fn pointer(&self, at: usize, end: usize) -> *mut T {
        assert!(at <= end && end <= self.len, "{at}..{end} of {}", self.len);
        // SAFETY: inside the slice.
        unsafe { self.start.add(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zero_and_begins_at_a_cache_line() {
        for len in [0, 1, 63, 1000] {
            let (floats, halves) = (Buffer::<f32>::zeroed(len), Buffer::<u16>::zeroed(len));
            assert_eq!((floats.len(), halves.len()), (len, len));
            assert!(floats.iter().all(|&v| v == 0.0) && halves.iter().all(|&v| v == 0));
            assert_eq!((floats.as_ptr() as usize % 64, halves.as_ptr() as usize % 64), (0, 0));
        }
    }
}
