//! Records as arrays of numbers, and the bytes of a field of all of them in a row.

use std::ops::Range;

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::record::Record;

/// What a batch is described by, in a row of eight numbers.
const BATCH_NUMBERS: usize = 8;
/// What a record is described by, a row of each.
const FIELDS: usize = 9;

/// Read the fields of all records of some batches into an array.
///
/// `batches` has rows of `BATCH_NUMBERS`: where in `flat` the records begin and end, how many they
/// are, base offset, last offset delta, base timestamp, whether the broker set the time (0 or 1),
/// and that time. `fields` has room for `FIELDS` rows, each with a number for each record: where
/// the key begins, its size, where the value begins, its size, where the headers begin, how many
/// they are, where the record ends, offset, timestamp. Returns how many batches were read. If that
/// is less than there are, the next one has a record that only the Python decoder may judge.
#[pyfunction]
pub fn read_fields(
    py: Python<'_>,
    flat: PyBuffer<u8>,
    batches: PyBuffer<i64>,
    fields: PyBuffer<i64>,
) -> PyResult<usize> {
    let bytes = shared(py, &flat)?;
    let columns = exclusive(py, &fields, &[extent(&flat), extent(&batches)])?;
    let batches = shared(py, &batches)?;
    if batches.len() % BATCH_NUMBERS != 0 || columns.len() % FIELDS != 0 {
        return Err(PyValueError::new_err("rows of another length"));
    }
    let count = columns.len() / FIELDS;
    let mut row = 0;
    for (index, batch) in batches.chunks_exact(BATCH_NUMBERS).enumerate() {
        let end = row + usize::try_from(batch[2])?;
        if end > count {
            return Err(PyValueError::new_err("more records than there is room for"));
        }
        if read_batch(bytes, batch, columns, count, row).is_none() {
            return Ok(index);
        }
        row = end;
    }
    Ok(batches.len() / BATCH_NUMBERS)
}

fn read_batch(
    bytes: &[u8],
    batch: &[i64],
    columns: &mut [i64],
    count: usize,
    first_row: usize,
) -> Option<()> {
    let mut position = usize::try_from(batch[0]).ok()?;
    let end = usize::try_from(batch[1]).ok()?;
    if end > bytes.len() {
        return None;
    }
    let (records, base_offset, last_delta) = (batch[2] as usize, batch[3], batch[4]);
    let (base_time, fixed) = (batch[5], (batch[6] != 0).then_some(batch[7]));
    let mut previous_delta = -1;
    for row in first_row..first_row + records {
        let record = Record::read(bytes, position, end)?;
        if record.offset_delta <= previous_delta || record.offset_delta > last_delta {
            return None;
        }
        previous_delta = record.offset_delta;
        let numbers = [
            record.key as i64,
            record.key_size,
            record.value as i64,
            record.value_size,
            record.headers as i64,
            record.header_count,
            record.end as i64,
            base_offset.checked_add(record.offset_delta)?,
            record.timestamp(base_time, fixed)?,
        ];
        for (field, number) in numbers.into_iter().enumerate() {
            columns[field * count + row] = number;
        }
        position = record.end;
    }
    (position == end).then_some(())
}

/// Copy fields of `flat` into `data`, one behind the other, and their bounds into `offsets`.
///
/// A size below 0 takes no bytes. `offsets` has one number more than there are fields.
#[pyfunction]
pub fn gather(
    py: Python<'_>,
    flat: PyBuffer<u8>,
    positions: PyBuffer<i64>,
    sizes: PyBuffer<i64>,
    offsets: PyBuffer<i32>,
    data: PyBuffer<u8>,
) -> PyResult<()> {
    let bytes = shared(py, &flat)?;
    let read = [extent(&flat), extent(&positions), extent(&sizes)];
    let bounds = exclusive(py, &offsets, &[&read[..], &[extent(&data)]].concat())?;
    let target = exclusive(py, &data, &[&read[..], &[extent(&offsets)]].concat())?;
    let (positions, sizes) = (shared(py, &positions)?, shared(py, &sizes)?);
    if sizes.len() != positions.len() || bounds.len() != positions.len() + 1 {
        return Err(PyValueError::new_err("columns of unequal length"));
    }
    let beyond = || PyValueError::new_err("a field beyond the buffer");
    let mut end = 0;
    bounds[0] = 0;
    for (row, (&position, &size)) in positions.iter().zip(sizes).enumerate() {
        if size > 0 {
            let (position, size) = (usize::try_from(position)?, size as usize);
            let from = bytes.get(position..).and_then(|rest| rest.get(..size));
            let to = target.get_mut(end..).and_then(|rest| rest.get_mut(..size));
            to.ok_or_else(beyond)?
                .copy_from_slice(from.ok_or_else(beyond)?);
            end += size;
        }
        bounds[row + 1] = i32::try_from(end)?;
    }
    Ok(())
}

/// The items of a buffer, while it is held.
pub(crate) fn shared<'a, T: Element>(_py: Python<'a>, buffer: &'a PyBuffer<T>) -> PyResult<&'a [T]> {
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("a buffer with gaps"));
    }
    if buffer.item_count() == 0 {
        return Ok(&[]);
    }
    // SAFETY: the buffer is contiguous, its items are `T`, and it is held for 'a. So is the lock of
    // the interpreter, so that no other thread writes to it. `exclusive` has refused to write to it.
    Ok(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<T>(), buffer.item_count()) })
}

/// The items of a buffer that none of `others` is a part of, to write to.
#[allow(clippy::mut_from_ref)]
fn exclusive<'a, T: Element>(
    _py: Python<'a>,
    buffer: &'a PyBuffer<T>,
    others: &[Range<usize>],
) -> PyResult<&'a mut [T]> {
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err(
            "a buffer that cannot be written to, or with gaps",
        ));
    }
    let own = extent(buffer);
    if others
        .iter()
        .any(|other| own.start < other.end && other.start < own.end)
    {
        return Err(PyValueError::new_err("buffers that overlap"));
    }
    if buffer.item_count() == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in `shared`, and no other slice that the caller makes has these bytes.
    Ok(
        unsafe {
            std::slice::from_raw_parts_mut(buffer.buf_ptr().cast::<T>(), buffer.item_count())
        },
    )
}

/// The addresses of a buffer's bytes.
fn extent<T: Element>(buffer: &PyBuffer<T>) -> Range<usize> {
    let start = buffer.buf_ptr() as usize;
    start..start + buffer.len_bytes()
}
