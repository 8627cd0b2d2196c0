//! The archive of an adapter that a server offers for download: a `tar.gz` with the two files of PEFT.

use std::{collections::BTreeSet, io::Read};

use flate2::read::GzDecoder;
use serde_json::{Map, Value};
use tar::Archive;

/// An adapter in PEFT's format, as the contents of its files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdapterFiles {
    /// `adapter_config.json`.
    pub config: Vec<u8>,
    /// `adapter_model.safetensors`.
    pub weights: Vec<u8>,
}

/// Limit of the number of files in an archive.
const FILES: usize = 1000;

impl AdapterFiles {
    /// Limit in bytes of an archive, and of what is in it: an adapter of rank 64 for 70 billion weights has 3.3 GB. A
    /// small archive may hold far more than its own size.
    pub(super) const LIMIT: u64 = 4 << 30;

    /// Returns the names of the modules that the weights adapt, such as `q_proj`; sorted, each once. They are in the
    /// head of the safetensors file, in names such as `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`.
    pub fn targets(&self) -> Vec<String> {
        let head = self.weights.split_first_chunk().and_then(|(length, rest)| {
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            serde_json::from_slice::<Map<String, Value>>(rest.get(..length)?).ok()
        });
        let head = head.unwrap_or_default();
        let modules =
            head.keys().filter_map(|name| name.rsplit_once(".lora_A")?.0.rsplit('.').next());
        modules.map(str::to_owned).collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Unpacks an archive. All else in it is left out, and nothing is written anywhere.
    ///
    /// # Errors
    /// Says what is wrong with the archive.
    pub(super) fn unpack(archive: &[u8]) -> Result<Self, String> {
        let unpacked = GzDecoder::new(archive).take(Self::LIMIT);
        let mut archive = Archive::new(unpacked);
        let broken = |error: std::io::Error| format!("it is not a tar.gz archive: {error}");
        let mut files = AdapterFiles::default();
        for entry in archive.entries().map_err(broken)?.take(FILES) {
            let mut entry = entry.map_err(broken)?;
            let name = entry.path().ok().and_then(|path| path.file_name().map(ToOwned::to_owned));
            let file = match name.as_ref().and_then(|name| name.to_str()) {
                _ if !entry.header().entry_type().is_file() => continue,
                Some("adapter_config.json") => &mut files.config,
                Some("adapter_model.safetensors") => &mut files.weights,
                _ => continue,
            };
            file.clear();
            entry.read_to_end(file).map_err(broken)?;
        }

        match &files {
            AdapterFiles { config, .. } if config.is_empty() => {
                Err("it has no adapter_config.json".into())
            }
            AdapterFiles { weights, .. } if weights.is_empty() => {
                Err("it has no adapter_model.safetensors".into())
            }
            _ => Ok(files),
        }
    }
}
