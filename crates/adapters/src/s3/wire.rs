//! Counts requests by verb, and reads the server's time from replies.
//!
//! S3 charges for requests, so the cost of a heartbeat is counted as it is spent. The time in a reply's `Date` is as
//! old as the reply: plus the time since, it is the earliest that the server's clock can show now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use http::header::DATE;
use http::{HeaderValue, Method};
use jiff::Timestamp;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::client::Client;

/// How many requests were made, by what each is charged as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    pub get: u64,
    pub put: u64,
    pub delete: u64,
    pub list: u64,
    /// All other requests, such as those for credentials.
    pub other: u64,
}

impl Requests {
    pub fn total(&self) -> u64 {
        self.get + self.put + self.delete + self.list + self.other
    }
}

#[derive(Debug, Default)]
pub(super) struct Meter {
    get: AtomicU64,
    put: AtomicU64,
    delete: AtomicU64,
    list: AtomicU64,
    other: AtomicU64,
    /// The `Date` of the last reply, and when that reply arrived.
    date: Mutex<Option<(Timestamp, Instant)>>,
}

impl Meter {
    pub fn requests(&self) -> Requests {
        let [get, put, delete, list, other] =
            [&self.get, &self.put, &self.delete, &self.list, &self.other].map(|count| count.load(Ordering::Relaxed));
        Requests { get, put, delete, list, other }
    }

    /// Returns the earliest possible time of the server; `None` if no reply had one.
    pub fn server_now(&self) -> Option<Timestamp> {
        let (date, since) = (*self.date.lock())?;
        date.checked_add(since.elapsed()).ok()
    }

    fn count(&self, request: &HttpRequest) {
        let is_list = request.uri().query().is_some_and(|query| query.contains("list-type="));
        let counter = match *request.method() {
            Method::GET if is_list => &self.list,
            Method::GET | Method::HEAD => &self.get,
            Method::PUT => &self.put,
            Method::DELETE => &self.delete,
            _ => &self.other,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn observe(&self, response: &HttpResponse) {
        if let Some(date) = response.headers().get(DATE).and_then(instant) {
            *self.date.lock() = Some((date, Instant::now()));
        }
    }
}

fn instant(date: &HeaderValue) -> Option<Timestamp> {
    let zoned = jiff::fmt::rfc2822::parse(date.to_str().ok()?).ok()?;
    Some(zoned.timestamp())
}

/// Makes clients that count their requests.
#[derive(Debug)]
pub(super) struct Metered(pub Arc<Meter>);

impl HttpConnector for Metered {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = Client::new(options).map_err(|source| object_store::Error::Generic { store: "S3", source })?;
        Ok(HttpClient::new(MeteredService { inner, meter: self.0.clone() }))
    }
}

#[derive(Debug)]
struct MeteredService {
    inner: Client,
    meter: Arc<Meter>,
}

#[async_trait]
impl HttpService for MeteredService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.meter.count(&request);
        let response = self.inner.send(request).await?;
        self.meter.observe(&response);
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_as_servers_write_it_and_nonsense_is_none() {
        let read = instant(&HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(read, "1994-11-06T08:49:37Z".parse().ok());
        for nonsense in ["", "yesterday", "Sun, 06 Nov 99999 08:49:37 GMT"] {
            assert_eq!(instant(&HeaderValue::from_static(nonsense)), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_servers_time_goes_on_between_its_answers() {
        let meter = Meter::default();
        assert_eq!(meter.server_now(), None);
        let date: Timestamp = "1994-11-06T08:49:37Z".parse().expect("an instant");
        *meter.date.lock() = Some((date, Instant::now()));
        tokio::time::advance(std::time::Duration::from_secs(5)).await;
        assert_eq!(meter.server_now(), "1994-11-06T08:49:42Z".parse().ok());
    }
}
