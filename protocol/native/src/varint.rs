//! Numbers of a record: zigzag varints, read from a slice.

/// A place in some bytes. Each read returns `None` where the bytes end, or where the number is
/// longer than nine bytes: the caller leaves such a record to the Python decoder.
pub struct Cursor<'a> {
    bytes: &'a [u8],
    pub position: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], position: usize) -> Self {
        Cursor { bytes, position }
    }

    /// One signed number.
    #[inline]
    pub fn number(&mut self) -> Option<i64> {
        let first = *self.bytes.get(self.position)?;
        self.position += 1;
        let mut number = u64::from(first & 0x7f);
        let mut byte = first;
        let mut shift = 7;
        while byte > 0x7f {
            if shift > 56 {
                return None;
            }
            byte = *self.bytes.get(self.position)?;
            self.position += 1;
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// The attributes of a record, which have no meaning.
    #[inline]
    pub fn skip_byte(&mut self) {
        self.position += 1;
    }

    /// A length and where as many bytes begin, which do not reach beyond `end`; -1 is null.
    #[inline]
    pub fn nullable(&mut self, end: usize) -> Option<(usize, i64)> {
        let size = self.number()?;
        let start = self.position;
        if size >= 0 {
            let room = end.checked_sub(start)?;
            if size as u64 > room as u64 {
                return None;
            }
            self.position += size as usize;
        } else if size != -1 {
            return None;
        }
        Some((start, size))
    }
}

#[inline]
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// The bytes that a number takes.
#[inline]
pub fn size_of(number: i64) -> usize {
    let bits = 64 - (zigzag(number) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Append a number.
#[inline]
pub fn put_number(to: &mut Vec<u8>, number: i64) {
    let mut rest = zigzag(number);
    while rest > 0x7f {
        to.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    to.push(rest as u8);
}
