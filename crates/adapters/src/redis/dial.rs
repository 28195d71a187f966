//! Makes connections: with TLS if the URL demands it, through Sentinels if it names them.
//!
//! Sentinels are asked for every connection, so that a connection after a failover leads to the new master. The server
//! that they name is asked whether it is the master, since a Sentinel may be out of date.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::error::Invalid;
use convoke_core::{Error, Result};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates,
};
use tracing::debug;

use super::address::{Address, Tls};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// After this a connection counts as dead, and its requests as unanswered.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);
/// How many requests may wait to be written; a further request waits for room.
const REQUESTS_MAX: usize = 256;
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

type PushHandler = Arc<dyn Fn(PushInfo) + Send + Sync>;

#[derive(Clone)]
pub(super) struct Dialer {
    address: Arc<Address>,
    certificates: TlsCertificates,
}

impl Dialer {
    /// Reads the files that the URL names. Does not connect yet.
    pub(super) fn new(field: &str, url: &str) -> Result<Self> {
        let address = Address::parse(field, url)?;
        let certificates = match &address.tls {
            Some(tls) => {
                // The first caller chooses the provider for the process; all callers here choose the same.
                let _ = rustls::crypto::ring::default_provider().install_default();
                read_certificates(field, tls)?
            }
            None => TlsCertificates { client_tls: None, root_cert: None },
        };
        let dialer = Dialer { address: Arc::new(address), certificates };
        // Reports an unreadable certificate now; otherwise connecting would be retried without end.
        for (host, port) in &dialer.address.hosts {
            dialer.client(host, *port, true).map_err(|error| Invalid::new(field, error.to_string()))?;
        }
        Ok(dialer)
    }

    /// Returns the address to connect to, without credentials.
    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Makes one attempt. `on_push` receives the server's push messages and the loss of the connection.
    pub(super) async fn dial(
        &self,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<MultiplexedConnection> {
        let on_push: PushHandler = Arc::new(on_push);
        let Some(master) = &self.address.master else {
            let (host, port) = self.address.hosts.first().ok_or((ErrorKind::InvalidClientConfig, "no host"))?;
            return connect(&self.client(host, *port, true)?, Some(on_push)).await;
        };
        let mut last = RedisError::from((ErrorKind::EmptySentinelList, "no Sentinel"));
        for (host, port) in &self.address.hosts {
            match self.dial_by(host, *port, master, on_push.clone()).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Makes attempts until one succeeds, with growing pauses.
    pub(super) async fn dial_until_connected(
        &self,
        what: &'static str,
        on_push: impl Fn(PushInfo) + Send + Sync + Clone + 'static,
    ) -> MultiplexedConnection {
        let mut pause = BACKOFF_FIRST;
        let mut tries = 0_u32;
        loop {
            match self.dial(on_push.clone()).await {
                Ok(connection) => {
                    debug!(what, tries, "connected to Redis again");
                    return connection;
                }
                // The users of the connection log that Redis is unavailable.
                Err(error) => debug!(what, %error, tries, "connecting to Redis failed"),
            }
            tries = tries.saturating_add(1);
            // Full jitter: the nodes of a cluster must not reconnect at the same moment.
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.1..1.0))).await;
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    /// Asks one Sentinel for the master's address and connects to it.
    async fn dial_by(
        &self,
        host: &str,
        port: u16,
        master: &str,
        on_push: PushHandler,
    ) -> RedisResult<MultiplexedConnection> {
        let (host, port) = match self.ask_sentinel(host, port, master, false).await {
            Err(error) if error.code() == Some("NOAUTH") => self.ask_sentinel(host, port, master, true).await?,
            other => other?,
        };
        let mut connection = connect(&self.client(&host, port, true)?, Some(on_push)).await?;
        let role: Vec<redis::Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
        match role.first() {
            Some(redis::Value::BulkString(role)) if role == b"master" => Ok(connection),
            _ => {
                Err((ErrorKind::MasterNameNotFoundBySentinel, "the server named by the Sentinel is not a master")
                    .into())
            }
        }
    }

    async fn ask_sentinel(&self, host: &str, port: u16, master: &str, login: bool) -> RedisResult<(String, u16)> {
        let mut sentinel = connect(&self.sentinel(host, port, login)?, None).await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("get-master-addr-by-name").arg(master);
        let address: Option<(String, u16)> = question.query_async(&mut sentinel).await?;
        address.ok_or_else(|| {
            (ErrorKind::MasterNameNotFoundBySentinel, "the Sentinel does not know a master of this name").into()
        })
    }

    fn sentinel(&self, host: &str, port: u16, login: bool) -> RedisResult<Client> {
        self.open(host, port, self.settings(login).set_db(0).set_protocol(ProtocolVersion::RESP2))
    }

    fn client(&self, host: &str, port: u16, login: bool) -> RedisResult<Client> {
        self.open(host, port, self.settings(login).set_db(self.address.db).set_protocol(ProtocolVersion::RESP3))
    }

    fn settings(&self, login: bool) -> RedisConnectionInfo {
        let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        if login && let Some(user) = &self.address.user {
            settings = settings.set_username(user);
        }
        if login && let Some(password) = &self.address.password {
            settings = settings.set_password(password);
        }
        settings
    }

    fn open(&self, host: &str, port: u16, settings: RedisConnectionInfo) -> RedisResult<Client> {
        let host = host.to_owned();
        if self.address.tls.is_none() {
            let address = ConnectionAddr::Tcp(host, port);
            return Client::open(address.into_connection_info()?.set_redis_settings(settings));
        }
        let address = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
        let info = address.into_connection_info()?.set_redis_settings(settings);
        Client::build_with_tls(info, self.certificates.clone())
    }
}

async fn connect(client: &Client, on_push: Option<PushHandler>) -> RedisResult<MultiplexedConnection> {
    let mut config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
        .set_pipeline_buffer_size(REQUESTS_MAX);
    if let Some(on_push) = on_push {
        config = config.set_push_sender(move |push| {
            on_push(push);
            Ok::<(), ()>(())
        });
    }
    client.get_multiplexed_async_connection_with_config(&config).await
}

fn read_certificates(field: &str, tls: &Tls) -> Result<TlsCertificates> {
    let read = |path: &String| {
        std::fs::read(path).map_err(|error| Error::from(Invalid::new(field, format!("cannot read {path}: {error}"))))
    };
    let root_cert = tls.authority.as_ref().map(read).transpose()?;
    let client_tls = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
        }
        _ => None,
    };
    Ok(TlsCertificates { client_tls, root_cert })
}
