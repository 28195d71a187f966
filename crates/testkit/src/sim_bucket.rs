//! A bucket in memory whose time is tokio's: with a paused clock, hours of it take seconds.
//!
//! It has what S3 has of use to an election: objects with tags, conditional writes, listings with the time of each write. Each client
//! has a latency of its own, half of which passes before a request takes effect and half before its response arrives, and can be cut
//! off: then its requests never return.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::ports::Clock;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::process::{Bucket, IfMatch};

/// When simulated time begins, in seconds since 1970.
const BEGIN_SECOND: u64 = 1_800_000_000;

#[derive(Debug, Clone)]
pub struct SimBucket {
    begin: Instant,
    objects: Arc<Mutex<Objects>>,
}

#[derive(Debug, Default)]
struct Objects {
    by_key: BTreeMap<String, Object>,
    writes: u64,
}

#[derive(Debug, Clone)]
struct Object {
    body: Bytes,
    etag: String,
    modified: Duration,
}

/// Wall time of the simulation.
impl Clock for SimBucket {
    fn now(&self) -> Timestamp {
        Timestamp::try_from(UNIX_EPOCH + self.since_1970()).expect("a time of this century")
    }
}

impl SimBucket {
    /// An empty one, whose time begins now.
    pub fn new() -> SimBucket {
        SimBucket { begin: Instant::now(), objects: Arc::default() }
    }

    /// A client whose requests take that long.
    pub fn client(&self, latency: Duration) -> SimClient {
        SimClient { bucket: self.clone(), latency, is_cut: Arc::default() }
    }

    fn since_1970(&self) -> Duration {
        Duration::from_secs(BEGIN_SECOND) + self.begin.elapsed()
    }

    fn find(&self, key: &str) -> Option<Object> {
        self.objects.lock().by_key.get(key).cloned()
    }

    /// The new tag, unless the condition does not hold.
    fn write(&self, key: &str, body: Bytes, condition: IfMatch<'_>) -> Option<String> {
        let modified = self.since_1970();
        let mut objects = self.objects.lock();
        let present = objects.by_key.get(key).map(|object| object.etag.as_str());
        let holds = match condition {
            IfMatch::Any => true,
            IfMatch::None => present.is_none(),
            IfMatch::Tag(etag) => present == Some(etag),
        };
        if !holds {
            return None;
        }
        objects.writes += 1;
        let etag = format!("\"{}\"", objects.writes);
        objects.by_key.insert(key.to_owned(), Object { body, etag: etag.clone(), modified });
        Some(etag)
    }

    fn under(&self, prefix: &str) -> Vec<(String, Object)> {
        let objects = self.objects.lock();
        let found = objects.by_key.iter().filter(|(key, _)| key.starts_with(prefix));
        found.map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    fn remove(&self, key: &str) {
        self.objects.lock().by_key.remove(key);
    }
}

impl Default for SimBucket {
    fn default() -> Self {
        SimBucket::new()
    }
}

/// One process's way to the bucket.
#[derive(Debug, Clone)]
pub struct SimClient {
    bucket: SimBucket,
    latency: Duration,
    is_cut: Arc<AtomicBool>,
}

impl SimClient {
    /// From now on nothing of it arrives, and it receives nothing.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    async fn pass(&self) {
        tokio::time::sleep(self.latency / 2).await;
        if self.is_cut.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }

    async fn request<T>(&self, act: impl FnOnce(&SimBucket) -> T) -> T {
        self.pass().await;
        let response = act(&self.bucket);
        self.pass().await;
        response
    }
}

#[async_trait]
impl Bucket for SimClient {
    async fn get(&self, key: &str) -> Option<(Value, String)> {
        let object = self.request(|bucket| bucket.find(key)).await?;
        Some((serde_json::from_slice(&object.body).expect("JSON"), object.etag))
    }

    async fn put(&self, key: &str, body: &[u8], condition: IfMatch<'_>) -> bool {
        self.request(|bucket| bucket.write(key, Bytes::copy_from_slice(body), condition)).await.is_some()
    }

    async fn delete(&self, key: &str) {
        self.request(|bucket| bucket.remove(key)).await;
    }

    async fn list(&self, prefix: &str) -> Vec<(String, Timestamp)> {
        let found = self.request(|bucket| bucket.under(prefix)).await;
        let modified = |object: &Object| Timestamp::try_from(UNIX_EPOCH + object.modified).expect("a time");
        found.into_iter().map(|(key, object)| (key, modified(&object))).collect()
    }

    fn now(&self) -> Timestamp {
        Clock::now(&self.bucket)
    }
}

impl fmt::Display for SimClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated bucket")
    }
}

fn meta(key: &str, object: &Object) -> ObjectMeta {
    ObjectMeta {
        location: Path::parse(key).expect("a key"),
        last_modified: (UNIX_EPOCH + object.modified).into(),
        size: object.body.len() as u64,
        e_tag: Some(object.etag.clone()),
        version: None,
    }
}

fn unsupported<T>(operation: &str) -> Result<T> {
    Err(Error::NotImplemented { operation: operation.into(), implementer: "a simulated bucket".into() })
}

#[async_trait]
impl ObjectStore for SimClient {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (key, body) = (location.as_ref(), Bytes::from(payload));
        let written = self.request(|bucket| match &options.mode {
            PutMode::Overwrite => bucket.write(key, body, IfMatch::Any),
            PutMode::Create => bucket.write(key, body, IfMatch::None),
            PutMode::Update(version) => {
                bucket.write(key, body, IfMatch::Tag(version.e_tag.as_deref().unwrap_or_default()))
            }
        });
        match written.await {
            Some(etag) => Ok(PutResult { e_tag: Some(etag), version: None, extensions: Default::default() }),
            None => Err(Error::Precondition { path: key.to_owned(), source: "412".into() }),
        }
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unsupported("multipart")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path = location.to_string();
        let Some(object) = self.request(|bucket| bucket.find(location.as_ref())).await else {
            return Err(Error::NotFound { path, source: "404".into() });
        };
        if options.if_none_match.as_ref() == Some(&object.etag) {
            return Err(Error::NotModified { path, source: "304".into() });
        }
        let meta = meta(location.as_ref(), &object);
        let range = 0..meta.size;
        let payload = GetResultPayload::Stream(stream::iter([Ok(object.body)]).boxed());
        Ok(GetResult { payload, meta, range, attributes: Default::default(), extensions: Default::default() })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let client = self.clone();
        let deleted = locations.then(move |location| {
            let client = client.clone();
            async move {
                let location = location?;
                client.request(|bucket| bucket.remove(location.as_ref())).await;
                Ok(location)
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let client = self.clone();
        let prefix = prefix.map(|prefix| format!("{prefix}/")).unwrap_or_default();
        let listed = async move {
            let found = client.request(|bucket| bucket.under(&prefix)).await;
            stream::iter(found.into_iter().map(|(key, object)| Ok(meta(&key, &object))))
        };
        listed.into_stream().flatten().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unsupported("list with a delimiter")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unsupported("copy")
    }
}
