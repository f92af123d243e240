//! The protobuf wire format: tags, varints and lengths.

use super::{ProtobufError, cut, malformed};

/// Iterates over the fields of a message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// The value of a field.
#[derive(Clone, Copy)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn read(&mut self) -> Result<(u32, Payload<'a>), ProtobufError> {
        let key = varint(&mut self.rest)?;
        let number = u32::try_from(key >> 3).ok().filter(|number| *number != 0);
        let number = number.ok_or_else(|| malformed("illegal tag"))?;
        let payload = match key & 7 {
            0 => Payload::Varint(varint(&mut self.rest)?),
            1 => Payload::Fixed64(u64::from_le_bytes(array(self.take(8)?)?)),
            2 => {
                let length = varint(&mut self.rest)?;
                let length = usize::try_from(length).map_err(|_| malformed("negative length"))?;
                Payload::Bytes(self.take(length)?)
            }
            5 => Payload::Fixed32(u32::from_le_bytes(array(self.take(4)?)?)),
            other => return Err(malformed(format!("illegal wireType {other}"))),
        };
        Ok((number, payload))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let taken = self.rest.split_at_checked(length);
        let (taken, rest) = taken.ok_or_else(cut)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u32, Payload<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            // After an error, the rest of the message is meaningless.
            self.rest = &[];
        }
        Some(field)
    }
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], ProtobufError> {
    bytes.try_into().map_err(|_| cut())
}

/// Reads a base-128 varint, least significant group first.
pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or_else(cut)?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(malformed("integer overflow"))
}

impl<'a> Payload<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], ProtobufError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(malformed("wrong wireType: bytes expected")),
        }
    }

    pub(super) fn text(self) -> Result<String, ProtobufError> {
        let text = std::str::from_utf8(self.bytes()?);
        Ok(text
            .map_err(|_| malformed("a string is not UTF-8"))?
            .to_owned())
    }

    #[allow(clippy::cast_possible_wrap)] // Negative numbers are encoded as large ones.
    pub(super) fn int64(self) -> Result<i64, ProtobufError> {
        match self {
            Self::Varint(number) | Self::Fixed64(number) => Ok(number as i64),
            Self::Fixed32(number) => Ok(i64::from(number)),
            Self::Bytes(_) => Err(malformed("wrong wireType: number expected")),
        }
    }

    #[allow(clippy::cast_possible_truncation)] // The upper half only repeats the sign.
    pub(super) fn int32(self) -> Result<i32, ProtobufError> {
        Ok(self.int64()? as i32)
    }

    pub(super) fn double(self) -> Result<f64, ProtobufError> {
        match self {
            Self::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(malformed("wrong wireType: double expected")),
        }
    }
}
