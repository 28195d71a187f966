//! The bucket's verbs, with results named by what the caller does next.

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Error, Result};
use futures_util::{StreamExt, TryStreamExt};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};

use super::documents::DOCUMENT_BYTES_MAX;

pub(super) const WHAT: &str = "leases";
/// How long one request may take, unless a lease requires a shorter limit.
pub(super) const REQUEST_WAIT: Duration = Duration::from_secs(5);
/// A folder with more files than this is rejected.
const LISTED_MAX: usize = 20_000;

/// The result of reading a file.
#[derive(Debug)]
pub(super) enum Found {
    Missing,
    /// The file still has the known tag.
    Unchanged,
    Body {
        etag: String,
        body: Bytes,
    },
}

/// The condition of a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Condition<'a> {
    Always,
    Absent,
    Matches(&'a str),
}

/// The result of a write that has a reply.
#[derive(Debug)]
pub(super) enum Written {
    /// The new tag.
    Done(String),
    /// The condition did not hold: 412.
    Lost,
    /// Another write was in progress and nothing was done: 409.
    Busy,
}

#[derive(Debug)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
}

impl Objects {
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Objects { store }
    }

    /// Reads a file, or finds that it has not changed.
    pub async fn read(&self, path: &Path, known: Option<&str>, wait: Duration) -> Result<Found> {
        let options = GetOptions { if_none_match: known.map(str::to_owned), ..GetOptions::default() };
        let reading = async {
            let response = self.store.get_opts(path, options).await?;
            if response.meta.size > DOCUMENT_BYTES_MAX {
                return Ok(Err(response.meta.size));
            }
            let etag = response.meta.e_tag.clone().unwrap_or_default();
            Ok(Ok(Found::Body { etag, body: response.bytes().await? }))
        };
        match within(wait.min(REQUEST_WAIT), reading).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(bytes)) => Err(Error::unavailable(
                WHAT,
                format!("{path} has {bytes} bytes, which is too large for a file of Convoke"),
            )),
            Err(Failure::Response(object_store::Error::NotModified { .. })) => Ok(Found::Unchanged),
            Err(Failure::Response(error)) if is_missing(&error) => Ok(Found::Missing),
            Err(failure) => Err(failure.nothing_happened()),
        }
    }

    /// Writes a file. Returns `Unknown` if the outcome is not known.
    pub async fn write(&self, path: &Path, body: Vec<u8>, condition: Condition<'_>, wait: Duration) -> Result<Written> {
        let mode = match condition {
            Condition::Always => PutMode::Overwrite,
            Condition::Absent => PutMode::Create,
            Condition::Matches(etag) => PutMode::Update(UpdateVersion { e_tag: Some(etag.to_owned()), version: None }),
        };
        let attributes = Attributes::from_iter([(Attribute::ContentType, "application/json")]);
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        match within(wait.min(REQUEST_WAIT), self.store.put_opts(path, body.into(), options)).await {
            Ok(put) => match put.e_tag {
                Some(etag) => Ok(Written::Done(etag)),
                // It was written, but without its tag it cannot be replaced next: it must be read.
                None => Err(Error::unknown(WHAT, "the reply of the server has no ETag")),
            },
            Err(Failure::Response(object_store::Error::Precondition { .. })) => Ok(Written::Lost),
            // The client uses this error for both. A lost race has the other status inside.
            Err(Failure::Response(object_store::Error::AlreadyExists { source, .. })) => {
                let is_lost = source.downcast_ref::<object_store::Error>().is_some();
                Ok(if is_lost { Written::Lost } else { Written::Busy })
            }
            Err(failure) => Err(failure.may_have_happened()),
        }
    }

    /// Succeeds if there is no such file.
    pub async fn delete(&self, path: &Path) -> Result<()> {
        match within(REQUEST_WAIT, self.store.delete(path)).await {
            Ok(()) => Ok(()),
            Err(Failure::Response(error)) if is_missing(&error) => Ok(()),
            Err(failure) => Err(failure.may_have_happened()),
        }
    }

    /// Lists the files of a folder: names and times, no contents.
    pub async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>> {
        let listing = self.store.list(Some(folder)).take(LISTED_MAX).try_collect();
        within(REQUEST_WAIT, listing).await.map_err(Failure::nothing_happened)
    }
}

enum Failure {
    Response(object_store::Error),
    Silence(Duration),
}

async fn within<T>(wait: Duration, request: impl Future<Output = object_store::Result<T>>) -> Result<T, Failure> {
    match tokio::time::timeout(wait, request).await {
        Ok(response) => response.map_err(Failure::Response),
        Err(_) => Err(Failure::Silence(wait)),
    }
}

impl Failure {
    fn into_source(self) -> Box<dyn StdError + Send + Sync> {
        match self {
            Failure::Response(error) => Box::new(error),
            Failure::Silence(wait) => format!("no reply within {wait:?}").into(),
        }
    }

    /// For a request that changes nothing, or was rejected.
    fn nothing_happened(self) -> Error {
        Error::unavailable(WHAT, self.into_source())
    }

    /// For a request that changes something: nothing happened only if it was not sent, or access was denied.
    fn may_have_happened(self) -> Error {
        use object_store::Error as StoreError;
        match &self {
            Failure::Response(
                StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } | StoreError::NotFound { .. },
            ) => self.nothing_happened(),
            Failure::Response(error) if was_not_sent(error) => self.nothing_happened(),
            _ => Error::unknown(WHAT, self.into_source()),
        }
    }
}

/// Returns whether the file is missing, not the bucket: a missing bucket does not mean that there is no leader.
fn is_missing(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && !error.to_string().contains("NoSuchBucket")
}

fn was_not_sent(error: &object_store::Error) -> bool {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(inner) = source {
        if let Some(http) = inner.downcast_ref::<HttpError>() {
            return http.kind() == HttpErrorKind::Connect;
        }
        source = inner.source();
    }
    false
}
