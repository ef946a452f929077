//! Rows, events and samples as Polars frames.
use std::collections::BTreeMap;

use polars::prelude::{
    BooleanChunkedBuilder, ChunkedBuilder, Column, DataFrame, DataType, Float64Type, Int64Type, IntoColumn, IntoSeries,
    ListBuilderTrait, ListPrimitiveChunkedBuilder, PolarsResult, PrimitiveChunkedBuilder, StringChunkedBuilder,
    UInt32Type, UInt64Type,
};
use serde_json::{Map, Value};

use crate::record::{COLUMNS, Cell, Dtype, LoggedEvent, LoggedHardware, LoggedRow, RequestRecord};

/// One column being filled.
enum Builder {
    Bool(BooleanChunkedBuilder),
    U32(PrimitiveChunkedBuilder<UInt32Type>),
    U64(PrimitiveChunkedBuilder<UInt64Type>),
    I64(PrimitiveChunkedBuilder<Int64Type>),
    F64(PrimitiveChunkedBuilder<Float64Type>),
    Utf8(StringChunkedBuilder),
    ListU32(ListPrimitiveChunkedBuilder<UInt32Type>),
}

impl Builder {
    fn new(name: &str, dtype: Dtype, rows: usize) -> Self {
        let name = name.into();
        match dtype {
            Dtype::Bool => Self::Bool(BooleanChunkedBuilder::new(name, rows)),
            Dtype::U32 => Self::U32(PrimitiveChunkedBuilder::new(name, rows)),
            Dtype::U64 => Self::U64(PrimitiveChunkedBuilder::new(name, rows)),
            Dtype::I64 => Self::I64(PrimitiveChunkedBuilder::new(name, rows)),
            Dtype::F64 => Self::F64(PrimitiveChunkedBuilder::new(name, rows)),
            Dtype::Utf8 => Self::Utf8(StringChunkedBuilder::new(name, rows)),
            Dtype::ListU32 => Self::ListU32(ListPrimitiveChunkedBuilder::new(name, rows, rows, DataType::UInt32)),
        }
    }

    /// Appends `cell`. A cell of another type cannot happen, since column and cell come from one table; it would become null.
    fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Self::Bool(b), Cell::Bool(v)) => b.append_value(v),
            (Self::U32(b), Cell::U32(v)) => b.append_value(v),
            (Self::U64(b), Cell::U64(v)) => b.append_value(v),
            (Self::I64(b), Cell::I64(v)) => b.append_value(v),
            (Self::F64(b), Cell::F64(v)) => b.append_value(v),
            (Self::Utf8(b), Cell::Utf8(v)) => b.append_value(v),
            (Self::ListU32(b), Cell::ListU32(v)) => b.append_slice(v),
            (Self::Bool(b), _) => b.append_null(),
            (Self::U32(b), _) => b.append_null(),
            (Self::U64(b), _) => b.append_null(),
            (Self::I64(b), _) => b.append_null(),
            (Self::F64(b), _) => b.append_null(),
            (Self::Utf8(b), _) => b.append_null(),
            (Self::ListU32(b), _) => b.append_null(),
        }
    }

    fn finish(self) -> Column {
        match self {
            Self::Bool(b) => b.finish().into_column(),
            Self::U32(b) => b.finish().into_column(),
            Self::U64(b) => b.finish().into_column(),
            Self::I64(b) => b.finish().into_column(),
            Self::F64(b) => b.finish().into_column(),
            Self::Utf8(b) => b.finish().into_column(),
            Self::ListU32(mut b) => b.finish().into_series().into_column(),
        }
    }
}

/// Request rows turned into columns as they come: a fifth of the memory that the rows themselves would take.
pub struct RequestColumns {
    rows: usize,
    segment: Option<Builder>,
    columns: Vec<Builder>,
}

impl RequestColumns {
    /// Empty columns with the `segment` column in front, as `requests.parquet` has it.
    pub fn with_segment() -> Self {
        Self { segment: Some(Builder::new("segment", Dtype::U32, 0)), ..Self::without_segment() }
    }

    fn without_segment() -> Self {
        let columns = COLUMNS.iter().map(|column| Builder::new(column.name, column.dtype, 0)).collect();
        Self { rows: 0, segment: None, columns }
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends one row.
    pub fn push(&mut self, segment: u32, record: &RequestRecord) {
        if let Some(builder) = &mut self.segment {
            builder.push(Cell::U32(segment));
        }
        for (builder, cell) in self.columns.iter_mut().zip(record.cells()) {
            builder.push(cell);
        }
        self.rows += 1;
    }

    /// The frame.
    pub fn finish(self) -> DataFrame {
        let columns = self.segment.into_iter().chain(self.columns).map(Builder::finish).collect();
        DataFrame::new(self.rows, columns).expect("columns of one table have distinct names and one length")
    }
}

/// A frame of rows, without the `segment` column; its schema is the same for no rows at all.
pub fn requests_frame(rows: &[&RequestRecord]) -> DataFrame {
    let mut columns = RequestColumns::without_segment();
    rows.iter().for_each(|record| columns.push(0, record));
    columns.finish()
}

/// A frame of rows with their segments, as `requests.parquet` holds them.
pub fn logged_frame(rows: &[LoggedRow]) -> DataFrame {
    let mut columns = RequestColumns::with_segment();
    rows.iter().for_each(|row| columns.push(row.segment, &row.record));
    columns.finish()
}

/// `segment`, `t_ns`, `what`, `message` and, as JSON text, every other field.
pub fn events_frame(events: &[LoggedEvent]) -> PolarsResult<DataFrame> {
    let mut segment = Builder::new("segment", Dtype::U32, events.len());
    let mut t_ns = Builder::new("t_ns", Dtype::I64, events.len());
    let mut what = Builder::new("what", Dtype::Utf8, events.len());
    let mut message = Builder::new("message", Dtype::Utf8, events.len());
    let mut extra = Builder::new("extra", Dtype::Utf8, events.len());
    for event in events {
        segment.push(Cell::U32(event.segment));
        t_ns.push(Cell::I64(event.t_ns.0));
        what.push(Cell::Utf8(&event.what));
        let mut fields = event.fields.clone();
        match fields.shift_remove("message") {
            Some(Value::String(text)) => message.push(Cell::Utf8(&text)),
            Some(other) => message.push(Cell::Utf8(&other.to_string())),
            None => message.push(Cell::Null),
        }
        if fields.is_empty() {
            extra.push(Cell::Null);
        } else {
            extra.push(Cell::Utf8(&Value::Object(fields).to_string()));
        }
    }
    let columns = [segment, t_ns, what, message, extra].map(Builder::finish).to_vec();
    DataFrame::new(events.len(), columns)
}

/// `segment`, `t_ns`, then one column a field in the order of its first sight: f64 where every sample that has it holds a number, else
/// text. Members of an object get a dot, elements of a list their number: `gpu.0.power_w`.
pub fn hardware_frame(samples: &[LoggedHardware]) -> PolarsResult<DataFrame> {
    /// Fields beyond this stay in the log only.
    const MOST_COLUMNS: usize = 1000;
    let mut names: Vec<String> = Vec::new();
    let mut numeric: BTreeMap<String, bool> = BTreeMap::new();
    let flat: Vec<BTreeMap<String, Value>> = samples.iter().map(|sample| flatten(&sample.fields)).collect();
    for sample in &flat {
        for (name, value) in sample {
            let taken = matches!(name.as_str(), "segment" | "t_ns");
            if !numeric.contains_key(name) && !taken && names.len() < MOST_COLUMNS {
                names.push(name.clone());
                numeric.insert(name.clone(), true);
            }
            if let Some(all) = numeric.get_mut(name) {
                *all &= value.is_number() || value.is_null();
            }
        }
    }
    let mut segment = Builder::new("segment", Dtype::U32, samples.len());
    let mut t_ns = Builder::new("t_ns", Dtype::I64, samples.len());
    for sample in samples {
        segment.push(Cell::U32(sample.segment));
        t_ns.push(Cell::I64(sample.t_ns.0));
    }
    let mut columns = vec![segment.finish(), t_ns.finish()];
    for name in names {
        let dtype = if numeric[&name] { Dtype::F64 } else { Dtype::Utf8 };
        let mut builder = Builder::new(&name, dtype, samples.len());
        for sample in &flat {
            match (sample.get(&name), dtype) {
                (None | Some(Value::Null), _) => builder.push(Cell::Null),
                (Some(value), Dtype::F64) => builder.push(value.as_f64().map_or(Cell::Null, Cell::F64)),
                (Some(Value::String(text)), _) => builder.push(Cell::Utf8(text)),
                (Some(other), _) => builder.push(Cell::Utf8(&other.to_string())),
            }
        }
        columns.push(builder.finish());
    }
    DataFrame::new(samples.len(), columns)
}

/// Leaves of nested objects and lists under dotted names.
fn flatten(fields: &Map<String, Value>) -> BTreeMap<String, Value> {
    fn walk(name: String, value: &Value, out: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(key, value)| walk(format!("{name}.{key}"), value, out)),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(n, value)| walk(format!("{name}.{n}"), value, out))
            }
            leaf => _ = out.insert(name, leaf.clone()),
        }
    }
    let mut out = BTreeMap::new();
    fields.iter().for_each(|(key, value)| walk(key.clone(), value, &mut out));
    out
}
