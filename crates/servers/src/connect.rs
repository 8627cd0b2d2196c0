//! A server by its address and its protocol.

use std::sync::Arc;

use firebrick_core::Key;

use crate::{
    dialect::{Dialect, ServerApi},
    error::PoolError,
    http::Address,
    sglang::Sglang,
    vllm::Vllm,
};

/// Makes the server at an address, which is not asked anything yet.
///
/// # Errors
/// When the address is not that of a server.
pub(crate) fn connect(
    dialect: Dialect,
    base: &str,
    key: Option<Key>,
) -> Result<Arc<dyn ServerApi>, PoolError> {
    let address = Address::new(base, key)?;
    Ok(match dialect {
        Dialect::Vllm => Arc::new(Vllm::at(address)),
        Dialect::Sglang => Arc::new(Sglang::at(address)),
    })
}
