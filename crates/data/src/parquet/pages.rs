//! Decompresses the pages of a Parquet file with a limit on their size.
//!
//! The reader's own codecs make room for as much as a page header claims, up to 2 GB a page, and there are as many
//! pages as columns. Its Zstandard is a C library. So the reader is made to believe that nothing is compressed, and
//! gets pages that have been decompressed with a limit.

use std::{
    fs::File,
    io::Read,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use parquet::{
    basic::Compression,
    bloom_filter::Sbbf,
    column::page::{Page, PageMetadata, PageReader},
    errors::ParquetError,
    file::{
        metadata::{ParquetMetaData, RowGroupMetaData},
        reader::{FileReader, RowGroupReader, SerializedPageReader},
    },
    record::reader::RowIter,
    schema::types::Type,
};

type Result<T> = std::result::Result<T, ParquetError>;

/// Limit on the decompressed pages, in bytes, that the columns of a row group hold at one time. Each column holds a
/// dictionary and a page. Writers aim at a megabyte. A page holds at least one value, and no prompt comes near
/// this limit.
const MAX_HELD: usize = 256 << 20;

/// Limit on the values of a page. Writers aim at some 20 000. A run of equal values takes a few bytes, however long it
/// is.
const MAX_VALUES: u32 = 4 << 20;

/// Limit on the values in the lists of a row group. It is not known here to which row they belong, and one row may
/// claim them all. A value takes some 80 bytes, once in the reader and once as JSON.
const MAX_IN_LISTS: u64 = 16 << 20;

/// A Parquet file.
pub(super) struct Pages {
    file: Arc<File>,
    metadata: ParquetMetaData,
}

impl Pages {
    pub(super) fn new(file: File, metadata: ParquetMetaData) -> Self {
        Pages { file: Arc::new(file), metadata }
    }
}

impl FileReader for Pages {
    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }

    fn num_row_groups(&self) -> usize {
        self.metadata.num_row_groups()
    }

    fn get_row_group(&self, index: usize) -> Result<Box<dyn RowGroupReader + '_>> {
        let file = self.file.clone();
        let budget = Arc::default();
        Ok(Box::new(Group { file, metadata: self.metadata.row_group(index), budget }))
    }

    fn get_row_iter(&self, projection: Option<Type>) -> Result<RowIter<'_>> {
        RowIter::from_file(projection, self)
    }
}

struct Group<'a> {
    file: Arc<File>,
    metadata: &'a RowGroupMetaData,
    budget: Arc<Budget>,
}

/// Budget that the columns of a row group share.
#[derive(Default)]
struct Budget {
    /// Bytes of the open pages.
    held: AtomicUsize,
    /// Values in lists that have been handed out.
    in_lists: AtomicU64,
}

impl RowGroupReader for Group<'_> {
    fn metadata(&self) -> &RowGroupMetaData {
        self.metadata
    }

    fn num_columns(&self) -> usize {
        self.metadata.num_columns()
    }

    fn get_column_page_reader(&self, index: usize) -> Result<Box<dyn PageReader>> {
        let column = self.metadata.column(index);
        let codec = column.compression();
        // The reader must not decompress anything by itself.
        let as_they_are = column.clone().into_builder();
        let as_they_are = as_they_are.set_compression(Compression::UNCOMPRESSED).build()?;
        let rows = usize::try_from(self.metadata.num_rows())?;
        let pages = SerializedPageReader::new(self.file.clone(), &as_they_are, rows, None)?;

        let in_lists = column.column_descr().max_rep_level() > 0;
        let budget = self.budget.clone();
        Ok(Box::new(Decompressed { pages, codec, in_lists, budget, dictionary: 0, page: 0 }))
    }

    fn get_column_bloom_filter(&self, _: usize) -> Option<&Sbbf> {
        None
    }

    fn get_row_iter(&self, projection: Option<Type>) -> Result<RowIter<'_>> {
        RowIter::from_row_group(projection, self)
    }
}

struct Decompressed {
    pages: SerializedPageReader<File>,
    codec: Compression,
    /// True if the column's values are in lists.
    in_lists: bool,
    budget: Arc<Budget>,
    /// Bytes of the budget that this column takes.
    dictionary: usize,
    page: usize,
}

impl Decompressed {
    /// Refuses more values than a page, or the lists of a row group, may have.
    fn admit(&self, page: &Page) -> Result<()> {
        let values = page.num_values();
        if values > MAX_VALUES {
            let problem =
                format!("a page claims {values} values, but at most {MAX_VALUES} are read");
            return Err(ParquetError::General(problem));
        }

        if self.in_lists && page.is_data_page() {
            let before = self.budget.in_lists.fetch_add(values.into(), Relaxed);
            if before + u64::from(values) > MAX_IN_LISTS {
                return Err(ParquetError::General(format!(
                    "the lists of a row group have more than {MAX_IN_LISTS} values: write the file \
                     with fewer rows per row group"
                )));
            }
        }
        Ok(())
    }
}

impl PageReader for Decompressed {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(mut page) = self.pages.get_next_page()? else { return Ok(None) };
        self.admit(&page)?;

        // This page replaces the one before it, while a dictionary stays.
        let held = if page.is_dictionary_page() { &mut self.dictionary } else { &mut self.page };
        let held_by_others = self.budget.held.fetch_sub(*held, Relaxed) - *held;
        *held = 0;

        let room = MAX_HELD.saturating_sub(held_by_others);
        match &mut page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => {
                *buf = decompress(self.codec, buf, 0, room)?;
            }
            // The levels are stored before the values, and are never compressed.
            Page::DataPageV2 {
                buf,
                is_compressed: true,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => {
                let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                *buf = decompress(self.codec, buf, usize::try_from(levels)?, room)?;
            }
            Page::DataPageV2 { .. } => {}
        }

        if page.buffer().len() > room {
            return Err(too_large());
        }

        *held = page.buffer().len();
        self.budget.held.fetch_add(*held, Relaxed);
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

impl Iterator for Decompressed {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// Tells whether pages of that codec can be read. The error says in words why not.
pub(super) fn check_codec(codec: Compression) -> std::result::Result<(), String> {
    match codec {
        Compression::LZ4 | Compression::LZO => Err(format!(
            "it is compressed with {codec}, expected ZSTD, SNAPPY, GZIP, BROTLI, LZ4_RAW or none: \
             convert it, for example with the Python library pyarrow"
        )),
        _ => Ok(()),
    }
}

/// Decompresses a page. Its first `kept` bytes are not compressed. The result has at most about `room` bytes.
fn decompress(codec: Compression, page: &Bytes, kept: usize, room: usize) -> Result<Bytes> {
    let damaged = || ParquetError::General("a page contradicts its header".into());
    let (head, input) = page.split_at_checked(kept).ok_or_else(damaged)?;

    // A page without values has nothing left to decompress.
    if codec == Compression::UNCOMPRESSED || input.is_empty() {
        return Ok(page.clone());
    }

    let mut bytes = head.to_vec();
    match codec {
        Compression::SNAPPY => bytes.append(&mut snappy(input, room)?),
        Compression::LZ4_RAW => bytes.append(&mut lz4(input, room)?),
        Compression::GZIP(_) => read(flate2::read::MultiGzDecoder::new(input), &mut bytes, room)?,
        Compression::BROTLI(_) => {
            read(brotli_decompressor::Decompressor::new(input, 1 << 16), &mut bytes, room)?;
        }
        Compression::ZSTD(_) => {
            let mut frames = input;
            // A page may be several frames, one after the other.
            while !frames.is_empty() {
                let decoder = ruzstd::decoding::StreamingDecoder::new(&mut frames);
                read(decoder.map_err(external)?, &mut bytes, room)?;
            }
        }
        Compression::UNCOMPRESSED | Compression::LZ4 | Compression::LZO => return Err(damaged()),
    }

    Ok(bytes.into())
}

/// Appends the output of a decoder, up to the limit.
fn read(decoder: impl Read, bytes: &mut Vec<u8>, room: usize) -> Result<()> {
    let room = room.saturating_sub(bytes.len());
    let length = decoder.take(room as u64 + 1).read_to_end(bytes).map_err(external)?;
    if length > room { Err(too_large()) } else { Ok(()) }
}

fn snappy(input: &[u8], max_bytes: usize) -> Result<Vec<u8>> {
    let claimed = snap::raw::decompress_len(input).map_err(external)?;
    // Three bytes stand for at most 64.
    if claimed > max_bytes || claimed / 32 > input.len() {
        return Err(too_large());
    }
    snap::raw::Decoder::new().decompress_vec(input).map_err(external)
}

/// Decompresses LZ4. The format does not say how long its content is, so the room grows until it is enough.
fn lz4(input: &[u8], max_bytes: usize) -> Result<Vec<u8>> {
    let mut room = input.len().saturating_mul(8).max(1 << 16).min(max_bytes);
    loop {
        match lz4_flex::block::decompress(input, room) {
            Ok(bytes) => return Ok(bytes),
            Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if room < max_bytes => {
                room = (room * 4).min(max_bytes);
            }
            Err(error) => return Err(external(error)),
        }
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> ParquetError {
    ParquetError::General(format!("a page can't be decompressed: {error}"))
}

fn too_large() -> ParquetError {
    ParquetError::General(format!(
        "the pages of a row group have more than {MAX_HELD} bytes at one time"
    ))
}

#[cfg(test)]
mod tests {
    use parquet::{
        file::{
            metadata::ParquetMetaDataReader, properties::WriterProperties,
            writer::SerializedFileWriter,
        },
        schema::parser::parse_message_type,
    };

    use super::*;

    /// Writes and reads a file with one row. Each of its columns is a list of `values` zeros, in runs of a few bytes.
    fn lists(columns: usize, values: usize) -> Result<Vec<parquet::record::Row>> {
        let names: Vec<String> = (0..columns).map(|i| format!("repeated int32 c{i};")).collect();
        let schema = parse_message_type(&format!("message rows {{ {} }}", names.concat()))?;
        let mut file = tempfile::tempfile()?;

        let properties = WriterProperties::builder()
            .set_data_page_size_limit(1 << 30)
            .set_data_page_row_count_limit(1 << 30)
            .build();

        let mut writer = SerializedFileWriter::new(&mut file, schema.into(), properties.into())?;
        let mut group = writer.next_row_group()?;
        let zeros = vec![0; values];
        let definition = vec![1; values];
        let mut repetition = definition.clone();
        repetition[0] = 0;

        while let Some(mut column) = group.next_column()? {
            let typed = column.typed::<parquet::data_type::Int32Type>();
            typed.write_batch(&zeros, Some(&definition), Some(&repetition))?;
            column.close()?;
        }

        group.close()?;
        writer.close()?;
        assert!(file.metadata()?.len() < 1 << 16, "a run takes a few bytes");

        let metadata = ParquetMetaDataReader::new().parse_and_finish(&file)?;
        RowIter::from_file_into(Box::new(Pages::new(file, metadata))).collect()
    }

    #[test]
    fn a_few_bytes_that_claim_endless_lists_are_refused() {
        assert_eq!(lists(2, 1000).unwrap().len(), 1);
        let page = lists(1, MAX_VALUES as usize + 1).unwrap_err().to_string();
        assert!(page.contains("claims 4194305 values"), "{page}");

        // Only a little of each page's values is read before the last page is opened.
        let all = lists(5, MAX_VALUES as usize).unwrap_err().to_string();
        assert!(all.contains("more than 16777216 values"), "{all}");
    }

    #[test]
    fn the_columns_of_a_row_group_share_their_room() {
        let page = Bytes::from(snap::raw::Encoder::new().compress_vec(&[0; 1 << 16]).unwrap());
        assert!(decompress(Compression::SNAPPY, &page, 0, 1 << 16).is_ok());
        assert!(decompress(Compression::SNAPPY, &page, 0, (1 << 16) - 1).is_err());
    }
}
