//! The style sheet, the scripts and the icon, which are part of the binary.
//!
//! The path of every asset has one hash of them all (`/assets/{hash}/app.js`), so that scripts import each other by
//! relative names, and browsers keep them for ever. During an upgrade a page of one version may ask a node of another
//! for its assets: it receives those of that node, which the browser does not keep.

use std::io::Write;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};

use crate::error::{ApiError, ApiResult};

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! files {
    ($($name:literal $kind:expr;)*) => {
        [$(($name, $kind, include_bytes!(concat!("../../assets/", $name)).as_slice()),)*]
    };
}

static FILES: &[(&str, &str, &[u8])] = &files! {
    "app.css" STYLE;
    "app.js" SCRIPT;
    "bulk.js" SCRIPT;
    "filter.js" SCRIPT;
    "keys.js" SCRIPT;
    "live.js" SCRIPT;
    "log.js" SCRIPT;
    "morph.js" SCRIPT;
    "rows.js" SCRIPT;
    "shards.js" SCRIPT;
    "times.js" SCRIPT;
    "icon.svg" "image/svg+xml";
};

/// An asset, as it is and compressed.
pub struct Asset {
    pub name: &'static str,
    kind: &'static str,
    plain: &'static [u8],
    pub gzip: Vec<u8>,
}

/// All assets, compressed once.
pub static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let assets = FILES.iter().map(|(name, kind, plain)| Asset { name, kind, plain, gzip: compress(plain) });
    assets.collect()
});

static HASH: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = Sha256::new();
    for (name, _, bytes) in FILES {
        hasher.update(name.as_bytes());
        hasher.update(bytes.len().to_be_bytes());
        hasher.update(bytes);
    }
    hasher.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
});

/// Returns the hash in the path of every asset.
pub fn hash() -> &'static str {
    &HASH
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("writing to memory does not fail")
}

pub async fn serve(Path((hash, name)): Path<(String, String)>, headers: HeaderMap) -> ApiResult {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return Err(ApiError::not_found(format!("there is no asset {name:?}")));
    };
    let zipped = headers.get(ACCEPT_ENCODING).is_some_and(accepts_gzip);
    let mut response: Response =
        if zipped { asset.gzip.as_slice().to_vec().into_response() } else { asset.plain.into_response() };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if zipped {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    let kept = if hash == self::hash() { "public, max-age=31536000, immutable" } else { "no-store" };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(kept));
    super::layout::secure(&mut response);
    Ok(response)
}

/// Returns whether the client accepts gzip: it names it without a weight of zero.
fn accepts_gzip(header: &HeaderValue) -> bool {
    header.to_str().is_ok_and(|accepted| {
        accepted.split(',').any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            name.trim().eq_ignore_ascii_case("gzip") && !matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_assets_together_are_small() {
        let total: usize = ASSETS.iter().map(|asset| asset.gzip.len()).sum();
        assert!(total <= 150 << 10, "{total} bytes compressed");
    }

    #[test]
    fn gzip_is_sent_to_clients_that_accept_it() {
        let accepts = |text: &str| accepts_gzip(&HeaderValue::try_from(text).expect("a header"));
        assert!(accepts("gzip") && accepts("br, GZIP;q=0.5, *") && accepts("deflate,gzip;q=1.0"));
        assert!(!accepts("") && !accepts("br") && !accepts("gzip;q=0") && !accepts("identity, gzip; q=0"));
    }
}
