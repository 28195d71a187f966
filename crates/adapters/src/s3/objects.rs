//! The bucket's verbs, with answers named by what the caller does next.

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
/// How long one request is waited for, unless a lease wants it shorter.
pub(super) const REQUEST_WAIT: Duration = Duration::from_secs(5);
/// A folder with more than this has something wrong with it.
const LISTED_MAX: usize = 20_000;

/// What a file was found to be.
#[derive(Debug)]
pub(super) enum Found {
    Missing,
    /// As it was when its tag was given.
    Unchanged,
    Body {
        etag: String,
        body: Bytes,
    },
}

/// What must hold for a write to be done.
#[derive(Debug, Clone, Copy)]
pub(super) enum Condition<'a> {
    Always,
    Absent,
    Matches(&'a str),
}

/// What came of a write that was answered.
#[derive(Debug)]
pub(super) enum Written {
    /// With the new tag.
    Done(String),
    /// Its condition did not hold: 412.
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

    /// Reads a file, or finds that it is as it was.
    pub async fn read(&self, path: &Path, known: Option<&str>, wait: Duration) -> Result<Found> {
        let options = GetOptions { if_none_match: known.map(str::to_owned), ..GetOptions::default() };
        let reading = async {
            let answer = self.store.get_opts(path, options).await?;
            if answer.meta.size > DOCUMENT_BYTES_MAX {
                return Ok(Err(answer.meta.size));
            }
            let etag = answer.meta.e_tag.clone().unwrap_or_default();
            Ok(Ok(Found::Body { etag, body: answer.bytes().await? }))
        };
        match within(wait.min(REQUEST_WAIT), reading).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(bytes)) => Err(Error::unavailable(WHAT, format!("{path} has {bytes} bytes: it is none of ours"))),
            Err(Failure::Response(object_store::Error::NotModified { .. })) => Ok(Found::Unchanged),
            Err(Failure::Response(error)) if is_missing(&error) => Ok(Found::Missing),
            Err(failure) => Err(failure.nothing_happened()),
        }
    }

    /// Writes a file. `Unknown` where nobody can say whether it was.
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
                // It was done, but what is to be replaced next cannot be named: read it.
                None => Err(Error::unknown(WHAT, "the server named no ETag")),
            },
            Err(Failure::Response(object_store::Error::Precondition { .. })) => Ok(Written::Lost),
            // The client calls both so. A lost race has the other name inside.
            Err(Failure::Response(object_store::Error::AlreadyExists { source, .. })) => {
                let is_lost = source.downcast_ref::<object_store::Error>().is_some();
                Ok(if is_lost { Written::Lost } else { Written::Busy })
            }
            Err(failure) => Err(failure.may_have_happened()),
        }
    }

    /// Not an error where there is none.
    pub async fn delete(&self, path: &Path) -> Result<()> {
        match within(REQUEST_WAIT, self.store.delete(path)).await {
            Ok(()) => Ok(()),
            Err(Failure::Response(error)) if is_missing(&error) => Ok(()),
            Err(failure) => Err(failure.may_have_happened()),
        }
    }

    /// What is in a folder: names and times, no contents.
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
        Ok(answer) => answer.map_err(Failure::Response),
        Err(_) => Err(Failure::Silence(wait)),
    }
}

impl Failure {
    fn into_source(self) -> Box<dyn StdError + Send + Sync> {
        match self {
            Failure::Response(error) => Box::new(error),
            Failure::Silence(wait) => format!("no answer within {wait:?}").into(),
        }
    }

    /// Of a request that changes nothing, or was refused.
    fn nothing_happened(self) -> Error {
        Error::unavailable(WHAT, self.into_source())
    }

    /// Of one that would have changed something: only where it was not even sent, or not let in, is its outcome known.
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

/// The file is missing, and not the bucket: that would be no reason to think that nobody leads.
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
