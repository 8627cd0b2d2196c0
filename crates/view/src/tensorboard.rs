//! A run in the format that TensorBoard reads.

use std::{path::Path, time::SystemTime};

use prost::Message;

use crate::{
    EventLog, ViewError,
    records::{Records, since_1970},
};

/// An event file of scalars for TensorBoard.
///
/// The values are 32-bit floats (`simple_value`), like TensorBoard's own scalars and PyTorch's. NaN and infinities are
/// kept, and values beyond the range of 3.4e38 become infinite. The format has tensors of doubles too, but TensorBoard
/// 2.21 shows no curves of them, and its `EventAccumulator.Scalars`, which scripts read, lacks them.
///
/// The file consists of records in TensorFlow's `TFRecord` format, each an `Event` of `event.proto`.
#[derive(Debug)]
pub struct TensorBoard {
    records: Records,
}

impl TensorBoard {
    /// Makes the event file of a run in `folder`. TensorBoard shows it as a run of the folder's name. A file of
    /// the same run, known by the time at which the run `started`, is replaced.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn create(folder: &Path, started: SystemTime) -> Result<Self, ViewError> {
        let started = since_1970(started);
        let name = format!("events.out.tfevents.{:010}.firebrick", started.as_secs());
        let mut records = Records::create(folder.join(name))?;

        let version = Event {
            wall_time: started.as_secs_f64(),
            file_version: Some("brain.Event:2".to_owned()),
            ..Event::default()
        };

        records.append(&framed(&version.encode_to_vec()))?;
        Ok(Self { records })
    }
}

impl EventLog for TensorBoard {
    fn log(&mut self, step: u64, time: f64, values: &[(String, f64)]) -> Result<(), ViewError> {
        let value = values
            .iter()
            .map(|(name, value)| Value { tag: name.clone(), simple_value: Some(*value as f32) })
            .collect();

        let event = Event {
            wall_time: time,
            step: step.cast_signed(),
            summary: Some(Summary { value }),
            ..Event::default()
        };
        self.records.append(&framed(&event.encode_to_vec()))
    }
}

/// Makes a record of `data`: the length, the length's checksum, the data, and the data's checksum.
fn framed(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + 16);
    record.extend(length);
    record.extend(masked_sum(&length).to_le_bytes());
    record.extend(data);
    record.extend(masked_sum(data).to_le_bytes());
    record
}

/// Computes a CRC-32C and masks it, so that it can be part of data that has its own CRC-32C (TensorFlow's `crc32c.h`).
fn masked_sum(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A message of `event.proto`; `file_version` and `summary` exclude each other.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

/// A message of `summary.proto`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

/// `Summary.Value` of `summary.proto`. The value is optional, because a plain field is not written if it is 0.
#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        time::{Duration, UNIX_EPOCH},
    };

    use super::*;

    /// The first number is in RFC 3720, B.4. The second comes from `masked_crc32c` of TensorBoard 2.21.
    #[test]
    fn a_sum_is_masked_as_tensorflow_masks_it() {
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(masked_sum(&[0; 32]), 0x0fd7_fffa);
    }

    /// The bytes are those that the `RecordWriter` and the messages of TensorBoard 2.21 make of the same events.
    #[test]
    fn a_file_is_the_one_that_tensorboard_writes() {
        let folder = tempfile::tempdir().unwrap();
        let started = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        for _ in 0..2 {
            let mut board = TensorBoard::create(folder.path(), started).unwrap();
            let values = [("a/b".to_owned(), 0.1), ("c".to_owned(), f64::NAN)];
            board.log(0, 1_700_000_001.5, &values).unwrap();
            board.log(300, 1_700_000_002.0, &[("a/b".to_owned(), f64::NEG_INFINITY)]).unwrap();
        }

        let file = folder.path().join("events.out.tfevents.1700000000.firebrick");
        let hex: String =
            fs::read(file).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    const GOLDEN: &str = concat!(
        "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d2100000000",
        "000000017becf60900006040fc54d9412a160a0a0a03612f6215cdcccc3d0a080a0163150000c07f30c0c27c1a",
        "00000000000000129bd82d0900008040fc54d94110ac022a0c0a0a0a03612f6215000080ffe48ab884",
    );

    #[test]
    fn zero_is_a_value() {
        let value = Value { tag: "a".to_owned(), simple_value: Some(0.0) };
        assert_eq!(Value::decode(&*value.encode_to_vec()).unwrap(), value);
    }
}
