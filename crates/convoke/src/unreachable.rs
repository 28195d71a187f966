//! Connections to backends: logs a connection that takes long, and returns an error that names the address and the
//! setting.

use convoke_core::Error;

/// A connection that takes longer than this is logged.
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
const NOTICE_AFTER: std::time::Duration = std::time::Duration::from_secs(2);

/// A backend that could not be connected to. The source of an [`Error::Unavailable`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot connect to {engine} at {place} ({setting}): {cause}")]
pub struct Unreachable {
    engine: &'static str,
    /// Host, port and path, without credentials.
    place: String,
    setting: String,
    cause: String,
}

impl Unreachable {
    /// Returns the `Unreachable` inside an error, if it has one.
    pub fn of(error: &Error) -> Option<&Unreachable> {
        match error {
            Error::Unavailable { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the setting that has the address: `store.url`, `bus.url`, `leases.url`, `mesh.url`, or `url` of a client
    /// or worker.
    pub fn setting(&self) -> &str {
        &self.setting
    }

    /// Returns the same error with another name of the setting, such as a flag.
    pub fn by(&self, setting: impl Into<String>) -> Unreachable {
        Unreachable { setting: setting.into(), ..self.clone() }
    }
}

/// Connects to the backend at `address`, which contains no credentials.
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
pub(crate) async fn connect<T>(
    engine: &'static str,
    address: &str,
    setting: &str,
    connecting: impl Future<Output = convoke_core::Result<T>>,
) -> convoke_core::Result<T> {
    let place = address.split_once("://").map_or(address, |(_, place)| place).to_owned();
    let mut connecting = std::pin::pin!(connecting);
    let connected = match tokio::time::timeout(NOTICE_AFTER, &mut connecting).await {
        Ok(connected) => connected,
        Err(_) => {
            tracing::info!(address, setting, "connecting to {engine} at {place}");
            connecting.await
        }
    };
    connected.map_err(|error| match error {
        Error::Unavailable { what, source } | Error::Unknown { what, source } => {
            let cause = plain(&source.to_string());
            Error::unavailable(what, Unreachable { engine, place, setting: setting.to_owned(), cause })
        }
        other => other,
    })
}

/// Returns the operating system's message without its number: `connection refused`.
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
fn plain(cause: &str) -> String {
    let cause = match cause.rsplit_once(" (os error ") {
        Some((words, number)) if number.ends_with(')') => words,
        _ => cause,
    };
    // The last cause is the original error; those before it name the layers that it passed.
    match cause.rsplit_once("Connection refused") {
        Some(_) => "connection refused".into(),
        None => cause.to_owned(),
    }
}

#[cfg(all(test, feature = "full"))]
mod tests {
    use std::time::Duration;

    use convoke_core::Result;

    use super::*;
    use crate::connect::{Addresses, backends, leases, mesh_link, worker_way};
    use crate::mesh::MeshAddress;

    /// Returns a port without a listener: it was bound and dropped.
    fn free_port() -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        listener.local_addr().expect("an address").port()
    }

    fn error_of<T>(connected: Result<T>) -> String {
        let Err(error) = connected else { panic!("it connected") };
        Unreachable::of(&error).unwrap_or_else(|| panic!("{error}")).to_string()
    }

    #[tokio::test]
    async fn every_backend_says_where_nobody_listens() {
        let port = free_port();
        let refused = |engine: &str, place: &str, setting: &str| {
            format!("cannot connect to {engine} at 127.0.0.1:{port}{place} ({setting}): connection refused")
        };
        let redis = format!("redis://ann:secret@127.0.0.1:{port}");
        let postgres = format!("postgres://ann@127.0.0.1:{port}/jobs?password=secret");
        let bus = backends(Addresses { bus: &redis, ..Addresses::default() }).await;
        assert_eq!(error_of(bus), refused("Redis", "", "bus.url"));
        let store = backends(Addresses { store: &postgres, ..Addresses::default() }).await;
        assert_eq!(error_of(store), refused("PostgreSQL", "/jobs", "store.url"));
        for (url, engine, place) in [(&redis, "Redis", ""), (&postgres, "PostgreSQL", "/jobs")] {
            assert_eq!(error_of(leases(url, "p").await), refused(engine, place, "leases.url"));
        }
        let sentinel = format!("redis+sentinel://:secret@127.0.0.1:{port}/main");
        assert_eq!(error_of(leases(&sentinel, "p").await), refused("Redis by Sentinel", "/main", "leases.url"));
        assert_eq!(error_of(mesh_link(&MeshAddress::new(&redis), "key").await), refused("Redis", "", "mesh.url"));
        assert_eq!(error_of(worker_way(&redis, None, "p").await), refused("Redis", "", "url"));
    }

    /// The listener accepts connections and never replies.
    #[tokio::test]
    async fn a_port_that_never_replies_is_given_up() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let (postgres, redis) = (format!("postgres://{address}/jobs"), format!("redis://{address}"));
        let both = async { tokio::join!(leases(&postgres, "p"), leases(&redis, "p")) };
        let ended = tokio::time::timeout(Duration::from_secs(60), both).await;
        let (postgres, redis) = ended.expect("nobody waits for ever");
        let expected = format!("cannot connect to PostgreSQL at {address}/jobs (leases.url): no reply within 10s");
        let postgres = error_of(postgres);
        assert!(postgres.starts_with(&expected), "{postgres}");
        let redis = error_of(redis);
        assert!(redis.starts_with(&format!("cannot connect to Redis at {address} (leases.url): ")), "{redis}");
    }

    #[tokio::test]
    async fn an_error_names_the_place_the_setting_and_the_cause() {
        let refused = async { Err::<(), _>(Error::unavailable("bus", "Connection refused (os error 111)")) };
        let error = connect("Redis", "redis://127.0.0.1:6399", "bus.url", refused).await.expect_err("refused");
        let unreachable = Unreachable::of(&error).expect("it is one");
        let expected = "cannot connect to Redis at 127.0.0.1:6399 (bus.url): connection refused";
        assert_eq!(unreachable.to_string(), expected);
        assert_eq!(unreachable.by("--bus").to_string(), expected.replace("bus.url", "--bus"));
        assert_eq!(error.to_string(), format!("bus is unavailable: {expected}"));
        let wrong = async { Err::<(), _>(Error::from(convoke_core::Invalid::new("bus.url", "expected more"))) };
        let error = connect("Redis", "redis://h", "bus.url", wrong).await.expect_err("refused");
        assert_eq!(error.to_string(), "bus.url: expected more", "what is wrong in itself stays as it is");
    }
}
