//! Reads bodies, path segments and query parameters of requests, within limits.
//!
//! A body is read once, whole, and parsed directly into its type. Only if that fails it is parsed a second time, with a
//! parser that tracks its position, to name the field: valid requests do not pay for invalid ones.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Query, Request};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use convoke_core::error::Invalid;
use convoke_core::limits::PAGE_MAX;
use convoke_core::strict::Strict;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use http_body_util::BodyExt;
use serde::de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::error::{ApiError, ApiResult};
use super::memory::Share;

/// For bodies of a few settings.
pub const SMALL_BYTES_MAX: usize = 64 << 10;
/// For one job: its arguments and its other fields.
pub const JOB_BYTES_MAX: usize = convoke_core::limits::ARGS_BYTES_MAX + (128 << 10);
/// For many jobs, and for reports with their results.
pub const BATCH_BYTES_MAX: usize = convoke_core::limits::BATCH_BYTES_MAX;
/// How much of a body that is too large is read, only to deliver the error: a client that still writes when the
/// connection closes sees a reset instead of the response.
const DISCARD_BYTES_MAX: usize = 64 << 20;
/// Time limit of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
const PAGE_DEFAULT: usize = 50;

/// Reads the whole body, at most `bytes_max` of it. Its content type is ignored; a body that is not JSON is rejected:
/// `curl -d` works as typed, and a blind request of a web page is rejected by its `Origin`.
pub async fn read(request: Request, bytes_max: usize) -> ApiResult<Bytes> {
    let (parts, body) = request.into_parts();
    let share = parts.extensions.get::<Share>().cloned().unwrap_or_default();
    match tokio::time::timeout(BODY_TIMEOUT, collect(&parts.headers, body, bytes_max, &share)).await {
        Ok(result) => result,
        Err(_) => {
            let message = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "invalid_argument", message).on("body"))
        }
    }
}

/// Reads the body as a `T`.
pub async fn parse<T: DeserializeOwned>(request: Request, bytes_max: usize) -> ApiResult<T> {
    let body = read(request, bytes_max).await?;
    from_slice(&body)
}

/// Like [`parse`]; an empty body means the defaults.
pub async fn parse_or_default<T: DeserializeOwned + Default>(request: Request, bytes_max: usize) -> ApiResult<T> {
    let body = read(request, bytes_max).await?;
    if body.trim_ascii().is_empty() { Ok(T::default()) } else { from_slice(&body) }
}

async fn collect(headers: &HeaderMap, mut body: axum::body::Body, bytes_max: usize, share: &Share) -> ApiResult<Bytes> {
    let too_large = || ApiError::too_large("body", format!("expected a body of at most {bytes_max} bytes"));
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > DISCARD_BYTES_MAX) {
        return Err(too_large());
    }
    let Some(first) = next_data(&mut body).await? else { return Ok(Bytes::new()) };
    share.admit(first.len())?;
    let (mut size, mut whole) = (first.len(), None::<BytesMut>);
    while let Some(data) = next_data(&mut body).await? {
        size += data.len();
        if size > DISCARD_BYTES_MAX {
            return Err(too_large());
        }
        if size <= bytes_max {
            share.admit(data.len())?;
            // A body in one piece is not copied; one in several pieces is, into a buffer of the announced size.
            let capacity = announced.unwrap_or(size * 2).clamp(size, bytes_max);
            let whole = whole.get_or_insert_with(|| {
                let mut whole = BytesMut::with_capacity(capacity);
                whole.extend_from_slice(&first);
                whole
            });
            whole.extend_from_slice(&data);
        }
    }
    if size > bytes_max {
        return Err(too_large());
    }
    Ok(whole.map_or(first, BytesMut::freeze))
}

async fn next_data(body: &mut axum::body::Body) -> ApiResult<Option<Bytes>> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::invalid("body", format!("the body ended early: {error}")))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Parses JSON; an error names the field by its path.
pub fn from_slice<T: DeserializeOwned>(body: &[u8]) -> ApiResult<T> {
    let mut parser = serde_json::Deserializer::from_slice(body);
    let value = T::deserialize(Strict(&mut parser)).and_then(|value| parser.end().map(|()| value));
    value.map_err(|error| locate::<T>(body, &error))
}

#[cold]
fn locate<T: DeserializeOwned>(body: &[u8], error: &serde_json::Error) -> ApiError {
    if body.trim_ascii().is_empty() {
        return ApiError::invalid("body", "expected a JSON object, got nothing");
    }
    let mut parser = serde_json::Deserializer::from_slice(body);
    let path = match serde_path_to_error::deserialize::<_, T>(Strict(&mut parser)) {
        Err(error) => error.path().to_string(),
        // The value is valid, and other text follows it.
        Ok(_) => ".".into(),
    };
    let message = error.to_string();
    if !error.is_data() {
        return ApiError::invalid("body", format!("expected JSON: {message}"));
    }
    let outer = if path == "." { "" } else { path.as_str() };
    // The path of an unknown field ends with it; a missing or duplicate field is in the object that the path leads to.
    let named = ["missing field `", "duplicate field `"].iter().find_map(|before| message.strip_prefix(before));
    let named = named.and_then(|rest| rest.split_once('`')).map(|(name, _)| name);
    let field = match named {
        Some(name) if outer.is_empty() => name.to_owned(),
        Some(name) => format!("{outer}.{name}"),
        None if outer.is_empty() => "body".to_owned(),
        None => outer.to_owned(),
    };
    ApiError::invalid(field, message)
}

/// Returns a response in JSON; `bytes_expected` is the initial size of its buffer.
pub fn json(status: StatusCode, value: &impl Serialize, bytes_expected: usize) -> Response {
    let mut text = Vec::with_capacity(bytes_expected);
    serde_json::to_writer(&mut text, value).expect("responses have string keys and no foreign Serialize");
    let mut response = Response::new(axum::body::Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns 200 with a value as JSON.
pub fn ok(value: &impl Serialize) -> Response {
    json(StatusCode::OK, value, 512)
}

/// A path segment that is an id or a name.
pub struct Segment<T>(pub T);

impl<T, S> FromRequestParts<S> for Segment<T>
where
    T: FromStr<Err = Invalid>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|error| ApiError::invalid("path", error.body_text()))?;
        Ok(Segment(text.parse()?))
    }
}

/// Query parameters. Each is taken by name; the rest is unknown, and rejected.
pub struct Params {
    left: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Params::of(&parts.uri)
    }
}

impl Params {
    pub fn of(uri: &Uri) -> ApiResult<Self> {
        let Query(left) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| ApiError::invalid("query", error.body_text()))?;
        Ok(Params { left, known: Vec::new() })
    }

    /// Returns parameters that were not in a query.
    pub fn from_pairs(left: Vec<(String, String)>) -> Self {
        Params { left, known: Vec::new() }
    }

    /// Returns the text of a parameter. An empty one counts as absent, as in a form.
    pub fn text(&mut self, name: &'static str) -> ApiResult<Option<String>> {
        self.known.push(name);
        let mut given = self.left.extract_if(.., |(key, _)| key == name).map(|(_, value)| value);
        let first = given.next();
        if given.next().is_some() {
            return Err(ApiError::invalid(name, "expected one value, got several"));
        }
        // The decoder puts this character in the place of bytes that are not text.
        if first.as_ref().is_some_and(|text| text.contains(char::REPLACEMENT_CHARACTER)) {
            return Err(ApiError::invalid(name, "expected UTF-8, percent-encoded, got other bytes"));
        }
        Ok(first.filter(|text| !text.is_empty()))
    }

    pub fn parse<T: FromStr<Err: Display>>(&mut self, name: &'static str) -> ApiResult<Option<T>> {
        self.parse_by(name, |text| text.parse::<T>().map_err(|error| format!("{error}, got {text:?}")))
    }

    /// Returns a name or an id; the error of its type describes what is expected.
    pub fn name<T: FromStr<Err = Invalid>>(&mut self, name: &'static str) -> ApiResult<Option<T>> {
        self.parse_by(name, |text| text.parse::<T>().map_err(|invalid| invalid.message))
    }

    pub fn parse_by<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> ApiResult<Option<T>> {
        let text = self.text(name)?;
        text.map(|text| parse(&text).map_err(|message| ApiError::invalid(name, message))).transpose()
    }

    /// Returns `limit`: the length of a page.
    pub fn limit(&mut self) -> ApiResult<usize> {
        self.limit_or(PAGE_DEFAULT)
    }

    pub fn limit_or(&mut self, default: usize) -> ApiResult<usize> {
        let in_range = |text: &str| match text.parse::<usize>() {
            Ok(limit @ 1..=PAGE_MAX) => Ok(limit),
            _ => Err(format!("expected a number from 1 to {PAGE_MAX}, got {text:?}")),
        };
        Ok(self.parse_by("limit", in_range)?.unwrap_or(default))
    }

    pub fn end(self) -> ApiResult<()> {
        let Some((name, _)) = self.left.into_iter().next() else { return Ok(()) };
        let known = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
        Err(ApiError::invalid(name.as_str(), format!("unknown parameter {name:?}, expected one of: {known}")))
    }
}

/// For routes that take no query parameters.
pub struct NoParams;

impl<S: Send + Sync> FromRequestParts<S> for NoParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        if parts.uri.query().is_some() {
            Params::of(&parts.uri)?.end()?;
        }
        Ok(NoParams)
    }
}

/// For requests with everything in the path: no body, or an empty object.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A list of which at most `MAX` items are kept, and the rest only counted: a small body cannot become large in memory.
pub struct Bounded<T, const MAX: usize> {
    pub items: Vec<T>,
    pub count: usize,
}

impl<T, const MAX: usize> Bounded<T, MAX> {
    pub fn within(self, field: &str) -> ApiResult<Vec<T>> {
        if self.count > MAX {
            return Err(ApiError::too_large(field, format!("expected at most {MAX}, got {}", self.count)));
        }
        Ok(self.items)
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
            type Value = Bounded<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while items.len() < MAX {
                    match seq.next_element()? {
                        Some(item) => items.push(item),
                        None => return Ok(Bounded { count: items.len(), items }),
                    }
                }
                let mut count = items.len();
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Bounded { items, count })
            }
        }

        deserializer.deserialize_seq(Items(PhantomData))
    }
}
