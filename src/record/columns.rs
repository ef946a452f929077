//! One table of columns: name, type, unit and meaning stand once and make the struct, the Parquet schema and the schema document.

/// Column type, as Parquet and Polars know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    /// `true` or `false`.
    Bool,
    /// Counts: tokens, chunks, indices.
    U32,
    /// Counts that may pass 2³².
    U64,
    /// Times in nanoseconds since the segment's anchor.
    I64,
    /// Server-reported times in milliseconds, sampler settings.
    F64,
    /// Words and text.
    Utf8,
    /// Gaps in microseconds, accepted tokens per position.
    ListU32,
}

/// One column of the request table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Member name in the log and column name in Parquet.
    pub name: &'static str,
    /// Its type.
    pub dtype: Dtype,
    /// Unit, or an empty string for words and flags.
    pub unit: &'static str,
    /// Meaning in one sentence.
    pub meaning: &'static str,
}

/// A value of one row in one column; `Null` is unknown, never zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// Unknown.
    Null,
    /// A flag.
    Bool(bool),
    /// A count.
    U32(u32),
    /// A large count.
    U64(u64),
    /// A time in ns.
    I64(i64),
    /// A real number.
    F64(f64),
    /// A word or text.
    Utf8(&'a str),
    /// A list of counts.
    ListU32(&'a [u32]),
}

/// A type that can stand in a column.
pub trait ColumnValue {
    /// Its column type.
    const DTYPE: Dtype;
    /// Its value.
    fn cell(&self) -> Cell<'_>;
    /// `false` for NaN and infinity, which JSON cannot hold and a log must never lose in silence.
    fn is_finite(&self) -> bool {
        true
    }
}

macro_rules! column_value {
    ($($ty:ty => $dtype:ident, |$v:ident| $cell:expr;)*) => {$(
        impl ColumnValue for $ty {
            const DTYPE: Dtype = Dtype::$dtype;
            fn cell(&self) -> Cell<'_> { let $v = self; $cell }
        }
    )*};
}

column_value! {
    bool => Bool, |v| Cell::Bool(*v);
    u32 => U32, |v| Cell::U32(*v);
    u64 => U64, |v| Cell::U64(*v);
    crate::units::TimestampNs => I64, |v| Cell::I64(v.0);
    String => Utf8, |v| Cell::Utf8(v);
    Vec<u32> => ListU32, |v| Cell::ListU32(v);
}

impl ColumnValue for f64 {
    const DTYPE: Dtype = Dtype::F64;
    fn cell(&self) -> Cell<'_> {
        if f64::is_finite(*self) { Cell::F64(*self) } else { Cell::Null }
    }
    fn is_finite(&self) -> bool {
        f64::is_finite(*self)
    }
}

impl<T: ColumnValue> ColumnValue for Option<T> {
    const DTYPE: Dtype = T::DTYPE;
    fn cell(&self) -> Cell<'_> {
        self.as_ref().map_or(Cell::Null, ColumnValue::cell)
    }
    fn is_finite(&self) -> bool {
        self.as_ref().is_none_or(ColumnValue::is_finite)
    }
}

/// Declares the record struct together with its table of columns.
macro_rules! record_columns {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$attr:meta])* $field:ident : $ty:ty, $unit:literal, $meaning:literal;)* }) => {
        $(#[$meta])*
        pub struct $name {
            $(#[doc = $meaning] $(#[$attr])* pub $field: $ty,)*
        }

        /// Every column of the request table, in the order of the file.
        pub const COLUMNS: &[$crate::record::Column] = &[
            $($crate::record::Column {
                name: stringify!($field),
                dtype: <$ty as $crate::record::columns::ColumnValue>::DTYPE,
                unit: $unit,
                meaning: $meaning,
            },)*
        ];

        impl $name {
            /// The values of this row, in the order of [`COLUMNS`].
            pub fn cells(&self) -> impl Iterator<Item = $crate::record::Cell<'_>> {
                [$($crate::record::columns::ColumnValue::cell(&self.$field),)*].into_iter()
            }

            /// The first column that holds NaN or infinity, which no log may hold.
            pub fn non_finite_column(&self) -> Option<&'static str> {
                $(if !$crate::record::columns::ColumnValue::is_finite(&self.$field) {
                    return Some(stringify!($field));
                })*
                None
            }
        }
    };
}
pub(super) use record_columns;
