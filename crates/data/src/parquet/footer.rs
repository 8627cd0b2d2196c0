//! Checks the footer of a Parquet file before the reader takes it at its word.
//!
//! The reader turns the list of schema elements into a tree by recursion without a limit, and makes room for as
//! many children as an element claims. A footer of a few hundred kilobytes can overflow the stack, which ends the
//! process. So the list is walked here first, byte for byte as the reader will walk it, and anything that the format
//! does not have there is refused: two readings of the same bytes can't differ.

use std::io::{Read, Seek, SeekFrom};

/// Limit on a footer, in bytes. Ten thousand column chunks have some 2 MB.
const MAX_BYTES: u64 = 16 << 20;

/// Limit on groups and columns. The reader holds room for 1024 values of every column.
const MAX_ELEMENTS: usize = 4096;

/// Limit on the nesting of groups. A list of structs takes three levels.
const MAX_DEPTH: usize = 64;

/// Reads a footer whose schema can be converted without danger. The error says in words why it can't.
pub(super) fn read(file: &mut (impl Read + Seek), size: u64) -> Result<Vec<u8>, String> {
    let no_parquet = || "it does not end as a Parquet file does".to_owned();
    let words = |error: std::io::Error| error.to_string();
    let mut end = [0; 8];
    // The last eight bytes are the footer's length and `PAR1`. The shortest file has `PAR1` in front of them.
    let tail = size.checked_sub(12).ok_or_else(no_parquet)? + 4;
    file.seek(SeekFrom::Start(tail)).map_err(words)?;
    file.read_exact(&mut end).map_err(words)?;

    let [a, b, c, d, magic @ ..] = end;
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    if &magic != b"PAR1" {
        return Err(no_parquet());
    }

    let start = tail.checked_sub(length).ok_or_else(no_parquet)?;
    if length > MAX_BYTES {
        return Err(format!("its footer has {length} bytes, but at most {MAX_BYTES} are read"));
    }

    file.seek(SeekFrom::Start(start)).map_err(words)?;
    let mut footer = Vec::new();
    file.take(length).read_to_end(&mut footer).map_err(words)?;

    let schema = Thrift(&footer).schema().ok_or("its footer does not begin with a schema")?;
    check(&schema)?;
    Ok(footer)
}

/// Checks that a list of elements, each with the number of its children, is a tree of bounded depth.
fn check(children: &[usize]) -> Result<(), String> {
    // The number of children still to come, for every open group.
    let mut open_groups: Vec<usize> = Vec::new();

    for (index, &count) in children.iter().enumerate() {
        if count > children.len() - index - 1 {
            return Err("a group of its schema claims more members than there are".into());
        }

        if let Some(missing_children) = open_groups.last_mut() {
            *missing_children -= 1;
        }

        open_groups.push(count);
        if open_groups.len() > MAX_DEPTH {
            return Err(format!("its schema is nested deeper than {MAX_DEPTH} levels"));
        }
        while open_groups.last() == Some(&0) {
            open_groups.pop();
        }
    }

    if open_groups.is_empty() { Ok(()) } else { Err("its schema ends too early".into()) }
}

/// Types of fields on the wire.
const BOOL: u8 = 2;
const BYTE: u8 = 3;
const I32: u8 = 5;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Reads the remaining bytes of Thrift's compact protocol. Its methods return `None` if the bytes don't follow
/// Parquet's definition.
struct Thrift<'a>(&'a [u8]);

impl Thrift<'_> {
    /// Reads the number of children of every schema element. The schema is the second field, and the only field
    /// that the reader converts.
    fn schema(&mut self) -> Option<Vec<usize>> {
        let version = self.field(0)?;
        (version == Some((1, I32))).then_some(())?;
        self.number()?;

        let schema = self.field(1)?;
        (schema == Some((2, LIST))).then_some(())?;
        // The count is in the upper half of the head, or follows it if it does not fit.
        let head = self.byte()?;
        (head & 0x0f == STRUCT).then_some(())?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        let count = usize::try_from(count).ok().filter(|count| *count <= MAX_ELEMENTS)?;

        (0..count).map(|_| self.element()).collect()
    }

    fn element(&mut self) -> Option<usize> {
        let mut last_id = 0;
        let mut children = 0;
        while let Some((id, kind)) = self.field(last_id)? {
            match (id, kind) {
                (5, I32) => children = usize::try_from(self.number()?).ok()?,
                (1..=9, I32) if id != 4 => drop(self.number()?),
                (4, BINARY) => self.bytes()?,
                (10, STRUCT) => self.logical_type()?,
                _ => return None,
            }
            last_id = id;
        }
        Some(children)
    }

    /// Skips one of the logical types, with its parameters.
    fn logical_type(&mut self) -> Option<()> {
        let Some((which, STRUCT)) = self.field(0)? else { return None };
        // Numbers of Parquet's union `LogicalType`: 5 decimal, 7 and 8 times, 10 integer, 16 variant, 17 and 18 shapes.
        let parameters: &[u8] = match which {
            5 => &[I32, I32],
            7 | 8 => &[BOOL, STRUCT],
            10 => &[BYTE, BOOL],
            16 => &[BYTE],
            17 => &[BINARY],
            18 => &[BINARY, I32],
            _ => &[],
        };

        let mut last_id = 0;
        while let Some((id, kind)) = self.field(last_id)? {
            (parameters.get(usize::from(id) - 1) == Some(&kind)).then_some(())?;
            match kind {
                BYTE => drop(self.byte()?),
                I32 => drop(self.number()?),
                BINARY => self.bytes()?,
                STRUCT => self.unit()?,
                _ => {}
            }

            last_id = id;
        }

        self.field(which)?.is_none().then_some(())
    }

    /// Skips the unit of a time: one of several structs without fields.
    fn unit(&mut self) -> Option<()> {
        let Some((which, STRUCT)) = self.field(0)? else { return None };
        (self.byte()? == 0 && self.field(which)?.is_none()).then_some(())
    }

    /// Reads the number and the type of a struct's next field. Returns `Some(None)` at the struct's end. Fields have to
    /// be in order, as every writer writes them. The types for true and for false count as one type.
    fn field(&mut self, last_id: u8) -> Option<Option<(u8, u8)>> {
        match self.byte()? {
            0 => Some(None),
            head => {
                let step = head >> 4;
                let kind = head & 0x0f;
                (step > 0 && kind > 0).then_some(())?;
                Some(Some((last_id.checked_add(step)?, if kind == 1 { BOOL } else { kind })))
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// Reads an unsigned number of at most 32 bits, seven bits a byte.
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return u32::try_from(number).ok().map(u64::from);
            }
        }
        None
    }

    fn number(&mut self) -> Option<i64> {
        // Thrift's zigzag: 0, −1, 1, −2 are written as 0, 1, 2, 3.
        let number = self.varint()? as i64;
        Some((number >> 1) ^ -(number & 1))
    }

    fn bytes(&mut self) -> Option<()> {
        let length = usize::try_from(self.varint()?).ok()?;
        self.0 = self.0.get(length..)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Makes the end of a file whose schema is groups with these numbers of children. Its footer has only the fields
    /// that are read here.
    fn file(children: &[u32]) -> Vec<u8> {
        let varint = |mut number: u32| {
            let mut bytes = Vec::new();
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
            bytes
        };

        let mut footer = vec![0x15, 2, 0x19, 0xfc];
        footer.extend(varint(children.len() as u32));

        for &count in children {
            // The group is required, is named `g`, and has children.
            footer.extend([0x35, 0, 0x18, 1, b'g', 0x15]);
            footer.extend(varint(count * 2));
            footer.push(0);
        }

        let length = footer.len() as u32;
        [b"PAR1".as_slice(), &footer, &length.to_le_bytes(), b"PAR1"].concat()
    }

    fn read_file(bytes: &[u8]) -> Result<Vec<u8>, String> {
        read(&mut Cursor::new(bytes), bytes.len() as u64)
    }

    #[test]
    fn schemas_that_would_end_the_process_are_refused() {
        let nested = |depth: usize| {
            let mut children = vec![1; depth];
            children[depth - 1] = 0;
            read_file(&file(&children))
        };

        assert!(nested(MAX_DEPTH).is_ok());
        assert!(nested(MAX_DEPTH + 1).unwrap_err().contains("nested deeper than 64"));

        // This list is longer than any that is read.
        assert!(nested(100_000).is_err());

        let many = read_file(&file(&[1 << 30, 0])).unwrap_err();
        assert!(many.contains("more members than there are"), "{many}");
        assert!(read_file(&file(&[2, 0, 0])).is_ok());
        assert!(read_file(&file(&[1, 0, 0])).is_ok());
    }

    #[test]
    fn an_oversized_footer_is_not_read() {
        let size = 20 << 20;
        let mut bytes = vec![0; size];
        bytes[size - 8..size - 4].copy_from_slice(&(17_u32 << 20).to_le_bytes());
        bytes[size - 4..].copy_from_slice(b"PAR1");
        assert!(read_file(&bytes).unwrap_err().contains("at most 16777216 are read"));

        // This footer would begin before the file does.
        bytes[size - 8..size - 4].copy_from_slice(&(21_u32 << 20).to_le_bytes());
        assert!(read_file(&bytes).unwrap_err().contains("does not end as a Parquet file"));
    }
}
