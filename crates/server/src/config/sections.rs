//! The sections of the configuration that only the binary reads. The others are defined beside the code that reads
//! them.

use std::time::Duration;

use convoke_core::jobs::schedule::{Missed, Overlap};
use convoke_core::{Invalid, Secret, duration, limits, sections};
use serde::{Deserialize, Serialize};

use convoke_http::{AccessOptions, Role, SESSION_TTL};

sections! {
    Node {
        /// `None`: the host's name and a random number.
        id: Option<String> = None,
        /// The file that the fenced decisions of this node are appended to. `None`: they are not recorded.
        history: Option<String> = None,
    }
    Http {
        /// `host:port`; with port 0 the system chooses a free port.
        bind: String = "127.0.0.1:3000".into(),
        /// `health,metrics`: these paths are served without a token, and `PORT` or `HOST` then listens on all
        /// addresses.
        public: String = String::new(),
        /// Names that a server without tokens accepts in `Host`, in addition to addresses and `localhost`.
        hosts: Vec<String> = Vec::new(),
        /// Allows listening beyond loopback without tokens.
        insecure: bool = false,
        /// The path under which a proxy serves this node, such as `/convoke`.
        base_path: String = String::new(),
        tokens: Vec<Token> = Vec::new(),
        /// How long a session of a browser lasts.
        #[serde(with = "duration")]
        session_ttl: Duration = SESSION_TTL,
    }
    /// Defaults of schedules.
    Schedules {
        missed: Missed = Missed::Latest,
        overlap: Overlap = Overlap::Skip,
        #[serde(with = "duration")]
        every_min: Duration = Duration::from_millis(100),
    }
    /// Built-in limits: a file may name them as documentation, but not change them.
    Limits {
        args_bytes_max: usize = limits::ARGS_BYTES_MAX,
        result_bytes_max: usize = limits::RESULT_BYTES_MAX,
        log_line_bytes_max: usize = limits::LOG_LINE_BYTES_MAX,
        batch_jobs_max: usize = limits::BATCH_JOBS_MAX,
        batch_bytes_max: usize = limits::BATCH_BYTES_MAX,
        name_bytes_max: usize = limits::NAME_BYTES_MAX,
        queues_max: usize = limits::QUEUES_MAX,
    }
}

/// A token with its role. In the environment: `role:token,role/name:token,role/name/hidden:token`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    pub token: Secret,
    pub role: Role,
    /// The name of its bearer in the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether its bearer sees arguments, results, errors and logs.
    #[serde(default, skip_serializing_if = "Payloads::is_default")]
    pub payloads: Payloads,
}

/// Whether payloads are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payloads {
    #[default]
    Shown,
    Hidden,
}

impl Payloads {
    fn is_default(&self) -> bool {
        *self == Payloads::default()
    }
}

impl Http {
    /// Returns the access rules of the HTTP API.
    pub fn access(&self) -> Result<AccessOptions, Invalid> {
        let public = self.public.parse().map_err(|message| Invalid::new("http.public", message))?;
        let tokens = self.tokens.iter().map(|entry| convoke_http::Token {
            token: entry.token.to_string(),
            role: entry.role,
            name: entry.name.clone(),
            payloads_hidden: entry.payloads == Payloads::Hidden,
        });
        Ok(AccessOptions {
            tokens: tokens.collect(),
            public,
            hosts: self.hosts.clone(),
            insecure: self.insecure,
            session_ttl: self.session_ttl,
        })
    }
}
