//! Columns of Python objects as the records of a batch.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyInt, PyList, PyString, PyTuple};

use crate::varint::{put_number, size_of};

/// What a record takes besides its key and value, as a rule.
const OVERHEAD: usize = 18;
/// The most that is allocated by the size of the first record. Others may be far smaller.
const FIRST_BYTES_MAX: usize = 1 << 20;

/// Encode columns as consecutive records, behind `room` zeros for the header of their batch.
///
/// All columns are as long as `values`; `timestamps` may be one number for all. Returns the bytes,
/// the first timestamp and the greatest; or None where a column holds what only the Python encoder
/// may judge.
#[pyfunction]
pub fn encode_columns<'py>(
    values: &Bound<'py, PyAny>,
    timestamps: &Bound<'py, PyAny>,
    keys: Option<&Bound<'py, PyAny>>,
    headers: Option<&Bound<'py, PyAny>>,
    room: usize,
) -> Option<(Bound<'py, PyByteArray>, i64, i64)> {
    let py = values.py();
    let values = values.cast::<PyList>().ok()?;
    let keys = keys
        .map(|column| column.cast::<PyList>())
        .transpose()
        .ok()?;
    let headers = headers
        .map(|column| column.cast::<PyList>())
        .transpose()
        .ok()?;
    let times = Times::of(timestamps)?;
    let base = times.at(0)?;
    let mut greatest = base;
    let mut bytes = vec![0; room];
    let mut tail = Vec::new();
    for row in 0..values.len() {
        let value = Field::at(values, row)?;
        let key = keys.map_or(Some(Field(None)), |column| Field::at(column, row))?;
        tail.clear();
        match headers {
            Some(column) => put_headers(&mut tail, &column.get_item(row).ok()?)?,
            None => tail.push(0),
        }
        let time = times.at(row)?;
        greatest = greatest.max(time);
        let (time_delta, offset_delta) = (time.checked_sub(base)?, row as i64);
        let size = 1 + size_of(time_delta) + size_of(offset_delta);
        let size = size + key.size() + value.size() + tail.len();
        if row == 0 {
            let expected = (size + OVERHEAD).saturating_mul(values.len());
            bytes.reserve(expected.min(FIRST_BYTES_MAX));
        }
        put_number(&mut bytes, size as i64);
        bytes.push(0);
        put_number(&mut bytes, time_delta);
        put_number(&mut bytes, offset_delta);
        key.put(&mut bytes);
        value.put(&mut bytes);
        bytes.extend_from_slice(&tail);
    }
    Some((PyByteArray::new(py, &bytes), base, greatest))
}

/// One time for all records, or one for each.
enum Times<'a, 'py> {
    Same(i64),
    Each(&'a Bound<'py, PyList>),
}

impl<'a, 'py> Times<'a, 'py> {
    fn of(timestamps: &'a Bound<'py, PyAny>) -> Option<Self> {
        match timestamps.cast::<PyList>() {
            Ok(column) => Some(Times::Each(column)),
            Err(_) => Some(Times::Same(number(timestamps)?)),
        }
    }

    #[inline]
    fn at(&self, row: usize) -> Option<i64> {
        match self {
            Times::Same(time) => Some(*time),
            Times::Each(column) => number(&column.get_item(row).ok()?),
        }
    }
}

fn number(object: &Bound<'_, PyAny>) -> Option<i64> {
    object.cast::<PyInt>().ok()?.extract().ok()
}

/// A key or a value, or null.
struct Field<'py>(Option<Bound<'py, PyBytes>>);

impl<'py> Field<'py> {
    #[inline]
    fn at(column: &Bound<'py, PyList>, row: usize) -> Option<Self> {
        Field::of(column.get_item(row).ok()?)
    }

    #[inline]
    fn of(object: Bound<'py, PyAny>) -> Option<Self> {
        if object.is_none() {
            return Some(Field(None));
        }
        Some(Field(Some(object.cast_into::<PyBytes>().ok()?)))
    }

    fn size(&self) -> usize {
        match &self.0 {
            Some(bytes) => {
                let size = bytes.as_bytes().len();
                size_of(size as i64) + size
            }
            None => size_of(-1),
        }
    }

    fn put(&self, to: &mut Vec<u8>) {
        match &self.0 {
            Some(bytes) => {
                let bytes = bytes.as_bytes();
                put_number(to, bytes.len() as i64);
                to.extend_from_slice(bytes);
            }
            None => put_number(to, -1),
        }
    }
}

fn put_headers(to: &mut Vec<u8>, headers: &Bound<'_, PyAny>) -> Option<()> {
    let headers = headers.cast::<PyTuple>().ok()?;
    put_number(to, headers.len() as i64);
    for header in headers.iter_borrowed() {
        let header = header.cast::<PyTuple>().ok()?;
        if header.len() != 2 {
            return None;
        }
        let name = header.get_item(0).ok()?.cast_into::<PyString>().ok()?;
        let name = name.to_str().ok()?;
        put_number(to, name.len() as i64);
        to.extend_from_slice(name.as_bytes());
        Field::of(header.get_item(1).ok()?)?.put(to);
    }
    Some(())
}
