//! One record of a batch without compression.
//!
//! The layout is drawn in `millrace_protocol/records/encode.py`. A record is accepted only if
//! `millrace_protocol/records/decode.py` accepts it, and then its fields are the same.

use crate::varint::Cursor;

/// The least that a record has behind its length.
const BODY_BYTES_MIN: i64 = 6;

/// The fields of a record, as places in the bytes it was read from; a size of -1 is null.
pub struct Record {
    pub time_delta: i64,
    pub offset_delta: i64,
    pub key: usize,
    pub key_size: i64,
    pub value: usize,
    pub value_size: i64,
    pub header_count: i64,
    /// Where the first header begins.
    pub headers: usize,
    pub end: usize,
}

impl Record {
    /// The record at `position`, which does not reach beyond `limit`; headers are not looked at.
    #[inline]
    pub fn read(bytes: &[u8], position: usize, limit: usize) -> Option<Record> {
        let mut cursor = Cursor::new(bytes, position);
        let length = cursor.number()?;
        if length < BODY_BYTES_MIN {
            return None;
        }
        let end = cursor.position.checked_add(usize::try_from(length).ok()?)?;
        if end > limit {
            return None;
        }
        cursor.skip_byte();
        let time_delta = cursor.number()?;
        let offset_delta = cursor.number()?;
        let (key, key_size) = cursor.nullable(end)?;
        let (value, value_size) = cursor.nullable(end)?;
        let header_count = cursor.number()?;
        let headers = cursor.position;
        let is_sound = if header_count == 0 {
            headers == end
        } else {
            headers <= end
        };
        is_sound.then_some(Record {
            time_delta,
            offset_delta,
            key,
            key_size,
            value,
            value_size,
            header_count,
            headers,
            end,
        })
    }

    /// The time of the record: `fixed` where the broker has set it for the whole batch.
    #[inline]
    pub fn timestamp(&self, base: i64, fixed: Option<i64>) -> Option<i64> {
        match fixed {
            Some(time) => Some(time),
            None => base.checked_add(self.time_delta),
        }
    }
}
