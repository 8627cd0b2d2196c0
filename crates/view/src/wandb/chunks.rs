//! Log format of LevelDB (`log_format.md`). A W&B file departs from LevelDB's own files in two ways: it begins with
//! seven bytes of its own, and the checksum is the CRC-32 of zlib, not masked.

/// Beginning of a file: a name, the low half of the CRC-32 of "Weights & Biases", and the version 0.
pub(super) const HEADER: [u8; 7] = *b":W&B\xe1\xbe\0";

/// Length of a block, in bytes. No chunk crosses the end of its block.
const BLOCK: usize = 32_768;

/// Length of a chunk's header, in bytes: a checksum, a length and a kind.
const CHUNK_HEADER: usize = 4 + 2 + 1;

/// Appends `data` to `bytes` as the chunks of one record. `bytes` are to be written to the file at `position`.
pub(super) fn append(bytes: &mut Vec<u8>, position: u64, data: &[u8]) {
    let mut room = BLOCK - (position as usize + bytes.len()) % BLOCK;
    // If a block has no room even for a header, it ends in zeros.
    if room < CHUNK_HEADER {
        bytes.resize(bytes.len() + room, 0);
        room = BLOCK;
    }

    let mut first = true;
    let mut data = data;
    loop {
        let (part, rest) = data.split_at(data.len().min(room - CHUNK_HEADER));
        // A record in one chunk, or the first, a middle or the last chunk of it.
        let kind = match (first, rest.is_empty()) {
            (true, true) => 1,
            (true, false) => 2,
            (false, false) => 3,
            (false, true) => 4,
        };

        let mut sum = flate2::Crc::new();
        sum.update(&[kind]);
        sum.update(part);
        bytes.extend(sum.sum().to_le_bytes());
        bytes.extend((part.len() as u16).to_le_bytes());
        bytes.push(kind);
        bytes.extend(part);

        if rest.is_empty() {
            return;
        }
        first = false;
        data = rest;
        room = BLOCK;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists the chunks of `bytes`, which begin at `position`: the start of each in `bytes`, its kind and its length.
    fn chunks(position: usize, bytes: &[u8]) -> Vec<(usize, u8, usize)> {
        let mut offset = 0;
        let mut chunks = Vec::new();
        while offset < bytes.len() {
            let room = BLOCK - (position + offset) % BLOCK;
            if room < CHUNK_HEADER {
                assert!(bytes[offset..offset + room].iter().all(|byte| *byte == 0));
                offset += room;
            }
            let length = usize::from(u16::from_le_bytes([bytes[offset + 4], bytes[offset + 5]]));
            chunks.push((offset, bytes[offset + 6], length));
            offset += CHUNK_HEADER + length;
        }
        chunks
    }

    fn appended(position: usize, length: usize) -> Vec<(usize, u8, usize)> {
        let mut bytes = Vec::new();
        append(&mut bytes, position as u64, &vec![7; length]);
        chunks(position, &bytes)
    }

    #[test]
    fn a_record_is_cut_where_blocks_end() {
        assert_eq!(appended(7, 100), [(0, 1, 100)]);
        // The record goes exactly to the end of the block, and then one byte beyond it: 32768 - 7 - 7 = 32754.
        assert_eq!(appended(7, 32_754), [(0, 1, 32_754)]);
        assert_eq!(appended(7, 32_755), [(0, 2, 32_754), (32_761, 4, 1)]);
        // A block without the file's header has room for 32761 bytes.
        assert_eq!(
            appended(BLOCK - 10, 3 + 32_761 + 5),
            [(0, 2, 3), (10, 3, 32_761), (10 + BLOCK, 4, 5)]
        );
        // There is room for a header alone, then for less than a header, and then for nothing.
        assert_eq!(appended(BLOCK - 7, 5), [(0, 2, 0), (7, 4, 5)]);
        assert_eq!(appended(BLOCK - 6, 5), [(6, 1, 5)]);
        assert_eq!(appended(BLOCK, 5), [(0, 1, 5)]);
    }

    /// The second record of a file starts after the first, although both are appended together.
    #[test]
    fn records_that_are_appended_together_know_of_each_other() {
        let mut bytes = Vec::new();
        append(&mut bytes, 7, &[1; 32_750]);
        append(&mut bytes, 7, &[2; 5]);
        // 7 + 7 + 32750 leaves 4 bytes of the block.
        assert_eq!(chunks(7, &bytes), [(0, 1, 32_750), (32_761, 1, 5)]);
    }

    /// The last chunk of a file that the SDK 0.31 wrote.
    #[test]
    fn a_chunk_is_the_one_that_the_sdk_writes() {
        let record = b"\x08\x14\x82\x01\x0e\x22\x0cx1csslru9thd\xc2\x0c\x0a\x0a\x08abc12345\x92\x01\x02\x08\x03";
        let mut bytes = Vec::new();
        append(&mut bytes, 2_686, record);
        assert_eq!(bytes[..7], [0xd2, 0x4f, 0x22, 0x48, 0x25, 0x00, 0x01]);
        assert_eq!(bytes[7..], *record);
    }
}
