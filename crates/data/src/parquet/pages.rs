//! The pages of a Parquet file, decompressed here.
//!
//! The reader's own codecs make room for what a page header claims, up to 2 GB a page and as many
//! pages as there are columns; and its Zstandard is a C library. So it is told that nothing is
//! compressed, and gets pages that have been decompressed with a limit.

use std::{fs::File, io::Read, sync::Arc};

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

/// The largest page, decompressed. Writers aim at a megabyte; a page holds at least one value, and
/// no prompt comes near this.
const MAX_PAGE: usize = 256 << 20;

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
        Ok(Box::new(Group { file: self.file.clone(), metadata: self.metadata.row_group(index) }))
    }

    fn get_row_iter(&self, projection: Option<Type>) -> Result<RowIter<'_>> {
        RowIter::from_file(projection, self)
    }
}

struct Group<'a> {
    file: Arc<File>,
    metadata: &'a RowGroupMetaData,
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
        let as_they_are = column.clone().into_builder();
        let as_they_are = as_they_are.set_compression(Compression::UNCOMPRESSED).build()?;
        let rows = usize::try_from(self.metadata.num_rows())?;
        let pages = SerializedPageReader::new(self.file.clone(), &as_they_are, rows, None)?;
        Ok(Box::new(Decompressed { pages, codec }))
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
}

impl PageReader for Decompressed {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(mut page) = self.pages.get_next_page()? else { return Ok(None) };
        match &mut page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => {
                *buf = decompress(self.codec, buf, 0)?;
            }
            // The levels stand before the values, and are never compressed.
            Page::DataPageV2 {
                buf,
                is_compressed: true,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => {
                let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                *buf = decompress(self.codec, buf, usize::try_from(levels)?)?;
            }
            Page::DataPageV2 { .. } => {}
        }
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

/// Whether pages of that codec can be read; in words if not.
pub(super) fn check_codec(codec: Compression) -> std::result::Result<(), String> {
    match codec {
        Compression::LZ4 | Compression::LZO => Err(format!(
            "it is compressed with {codec}, expected ZSTD, SNAPPY, GZIP, BROTLI, LZ4_RAW or none: \
             convert it, such as with the Python library pyarrow"
        )),
        _ => Ok(()),
    }
}

/// A page's bytes, of which the first `kept` are not compressed.
fn decompress(codec: Compression, page: &Bytes, kept: usize) -> Result<Bytes> {
    let damaged = || ParquetError::General("a page contradicts its header".into());
    let (head, input) = page.split_at_checked(kept).ok_or_else(damaged)?;
    // Of a page without values nothing is left to be compressed.
    if codec == Compression::UNCOMPRESSED || input.is_empty() {
        return Ok(page.clone());
    }
    let mut bytes = head.to_vec();
    match codec {
        Compression::SNAPPY => bytes.append(&mut snappy(input)?),
        Compression::LZ4_RAW => bytes.append(&mut lz4(input)?),
        Compression::GZIP(_) => read(flate2::read::MultiGzDecoder::new(input), &mut bytes)?,
        Compression::BROTLI(_) => {
            read(brotli_decompressor::Decompressor::new(input, 1 << 16), &mut bytes)?;
        }
        Compression::ZSTD(_) => {
            let mut frames = input;
            // A page may be several frames, one after the other.
            while !frames.is_empty() {
                let decoder = ruzstd::decoding::StreamingDecoder::new(&mut frames);
                read(decoder.map_err(external)?, &mut bytes)?;
            }
        }
        Compression::UNCOMPRESSED | Compression::LZ4 | Compression::LZO => return Err(damaged()),
    }
    Ok(bytes.into())
}

/// Appends what a decoder gives, as far as the limit.
fn read(decoder: impl Read, bytes: &mut Vec<u8>) -> Result<()> {
    let room = MAX_PAGE.saturating_sub(bytes.len());
    let length = decoder.take(room as u64 + 1).read_to_end(bytes).map_err(external)?;
    if length > room { Err(too_large()) } else { Ok(()) }
}

fn snappy(input: &[u8]) -> Result<Vec<u8>> {
    let claimed = snap::raw::decompress_len(input).map_err(external)?;
    // Three bytes stand for at most 64.
    if claimed > MAX_PAGE || claimed / 32 > input.len() {
        return Err(too_large());
    }
    snap::raw::Decoder::new().decompress_vec(input).map_err(external)
}

/// The format does not say how long its content is, so room is made until it is enough.
fn lz4(input: &[u8]) -> Result<Vec<u8>> {
    let mut room = input.len().saturating_mul(8).clamp(1 << 16, MAX_PAGE);
    loop {
        match lz4_flex::block::decompress(input, room) {
            Ok(bytes) => return Ok(bytes),
            Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if room < MAX_PAGE => {
                room = (room * 4).min(MAX_PAGE);
            }
            Err(error) => return Err(external(error)),
        }
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> ParquetError {
    ParquetError::General(format!("a page can't be decompressed: {error}"))
}

fn too_large() -> ParquetError {
    ParquetError::General(format!("a page has more than {MAX_PAGE} bytes"))
}
