//! Records as Python objects, in one list per field.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::gather::shared;
use crate::record::Record;
use crate::varint::Cursor;

/// The least that a header takes: two lengths.
const HEADER_BYTES_MIN: usize = 2;

/// Fill rows of the four columns from the records of a batch without gaps.
///
/// The first record is at `position` and belongs into row `row`; its offset delta is
/// `offset_delta`. No record reaches beyond `end`. A row whose key or value is null, or which has
/// no headers, is left as it is. Returns the first row that is not filled, and where its record
/// begins. The rows are all filled, or the record is one that only the Python decoder may judge.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn read_records<'py>(
    py: Python<'py>,
    buf: PyBuffer<u8>,
    position: usize,
    end: usize,
    row: usize,
    offset_delta: i64,
    base_timestamp: i64,
    fixed_timestamp: Option<i64>,
    timestamps: &Bound<'py, PyList>,
    keys: &Bound<'py, PyList>,
    values: &Bound<'py, PyList>,
    headers: &Bound<'py, PyList>,
) -> PyResult<(usize, usize)> {
    let bytes = shared(py, &buf)?;
    let limit = end.min(bytes.len());
    let rows = values.len();
    let (mut row, mut position, mut offset_delta) = (row, position, offset_delta);
    let mut last_time: Option<(i64, Bound<'py, PyAny>)> = None;
    while row < rows {
        let Some(record) = Record::read(bytes, position, limit) else {
            break;
        };
        let Some(time) = record.timestamp(base_timestamp, fixed_timestamp) else {
            break;
        };
        if record.offset_delta != offset_delta {
            break;
        }
        if record.header_count != 0 {
            let Some(found) = read_headers(py, bytes, &record)? else {
                break;
            };
            headers.set_item(row, found)?;
        }
        let stamp = match &last_time {
            Some((known, object)) if *known == time => object.clone(),
            _ => time.into_pyobject(py)?.into_any(),
        };
        timestamps.set_item(row, &stamp)?;
        last_time = Some((time, stamp));
        if record.key_size >= 0 {
            keys.set_item(row, field(py, bytes, record.key, record.key_size))?;
        }
        if record.value_size >= 0 {
            values.set_item(row, field(py, bytes, record.value, record.value_size))?;
        }
        position = record.end;
        offset_delta += 1;
        row += 1;
    }
    Ok((row, position))
}

fn field<'py>(py: Python<'py>, bytes: &[u8], start: usize, size: i64) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &bytes[start..start + size as usize])
}

/// The headers of a record as a tuple of pairs, which together end where the record does.
fn read_headers<'py>(
    py: Python<'py>,
    bytes: &[u8],
    record: &Record,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let Ok(count) = usize::try_from(record.header_count) else {
        return Ok(None);
    };
    if count > (record.end - record.headers) / HEADER_BYTES_MIN {
        return Ok(None);
    }
    let mut cursor = Cursor::new(bytes, record.headers);
    let mut found = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((start, size)) = cursor.nullable(record.end) else {
            return Ok(None);
        };
        if size < 0 {
            return Ok(None);
        }
        let Ok(name) = std::str::from_utf8(&bytes[start..start + size as usize]) else {
            return Ok(None);
        };
        let Some((start, size)) = cursor.nullable(record.end) else {
            return Ok(None);
        };
        let value = (size >= 0).then(|| field(py, bytes, start, size));
        found.push((PyString::new(py, name), value).into_pyobject(py)?);
    }
    if cursor.position != record.end {
        return Ok(None);
    }
    Ok(Some(PyTuple::new(py, found)?))
}
