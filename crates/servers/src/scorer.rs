//! Servers of a model that is not trained, which are asked for the log-probabilities of given tokens.

use std::{sync::Arc, time::Duration};

use firebrick_core::{Key, TokenId};

use crate::{
    connect::connect,
    dialect::{Dialect, ServerApi},
    errands::{Complaints, Errand, Settle, spread},
    error::{PoolError, ServerError},
};

/// How many texts a server works on concurrently.
const AT_ONCE: usize = 8;

/// Servers that all have the same model. A text that one of them fails is asked for again, of any of them.
pub struct Scorers {
    servers: Arc<[Arc<dyn ServerApi>]>,
    /// How long a server may take for a text.
    deadline: Duration,
    /// How long all servers may fail before the work ends.
    pub patience: Duration,
    complaints: Arc<Complaints>,
}

impl Scorers {
    /// Makes the servers of these addresses. None of them is asked anything yet. Failures that are waited out are notes for
    /// the user, through `tell`.
    ///
    /// # Errors
    /// When an address is not that of a server.
    pub fn new(
        dialect: Dialect,
        servers: &[String],
        key: Option<&Key>,
        deadline: Duration,
        patience: Duration,
        tell: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, PoolError> {
        let server = |base: &String| connect(dialect, base, key.cloned());
        let servers = servers.iter().map(server).collect::<Result<_, _>>()?;
        let complaints = Arc::new(Complaints::new(Box::new(tell)));
        Ok(Scorers { servers, deadline, patience, complaints })
    }

    /// Returns the log-probabilities of each text's tokens after the first, at temperature 1. A text has at least two
    /// tokens. `None` as soon as the work is `interrupted`.
    ///
    /// # Errors
    /// When the servers refuse a text or can't score it, or none has answered for longer than the patience.
    pub fn score(
        &self,
        texts: Vec<Vec<TokenId>>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Vec<f32>>>, PoolError> {
        let (count, deadline) = (texts.len(), self.deadline);
        let score: Arc<Errand<Arc<dyn ServerApi>, Vec<f32>>> =
            Arc::new(move |server, text| server.score(None, &texts[text], deadline));
        let servers = &self.servers;
        let (patience, complaints) = (self.patience, self.complaints.clone());
        let bases: Vec<String> =
            servers.iter().map(|server| server.address().base().to_owned()).collect();
        let settle: Arc<Settle<Vec<f32>>> = Arc::new(move |server, error, own_fault| {
            // Without a text's numbers there is no step.
            if own_fault || matches!(error, ServerError::Refused { .. }) {
                return Some(Err(error.clone()));
            }
            complaints.say(|| {
                format!(
                    "the teacher's server {}: {error}; it is asked again, for {} s at most",
                    bases[server],
                    patience.as_secs()
                )
            });
            None
        });

        let scored = spread(servers, count, AT_ONCE, self.patience, &score, &settle, interrupted);
        scored.map_err(|failure| PoolError::NotScored {
            server: servers[failure.server].address().base().to_owned(),
            hint: match failure.source.has_forgotten() {
                true => " (the address is that of the server alone, without /v1)",
                false => "",
            },
            seconds: self.patience.as_secs(),
            source: failure.source,
        })
    }
}
