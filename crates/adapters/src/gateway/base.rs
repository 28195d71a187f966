//! The addresses of coordinators, checked once.

use std::sync::atomic::{AtomicUsize, Ordering};

use convoke_core::{Invalid, Result};
use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

const EXPECTED: &str = "expected an address such as http://127.0.0.1:3000 or https://convoke.example.com";

/// Scheme and authority of every request, and the prefix of its path.
#[derive(Debug, Clone)]
pub(super) struct Base {
    scheme: Scheme,
    authority: Authority,
    prefix: String,
}

impl Base {
    pub fn parse(url: &str) -> Result<Self> {
        let refuse = |why: &str| Invalid::new("url", format!("{EXPECTED}, {why}"));
        // A password must not reach a log through the error.
        if url.contains('@') {
            Err(refuse("got one with a user name in it: give a token instead"))?;
        }
        if url.contains(['?', '#']) {
            Err(refuse("got one with a query or a fragment"))?;
        }
        let uri: Uri = url.trim().parse().map_err(|error| refuse(&format!("got {url:?}: {error}")))?;
        let parts = uri.into_parts();
        let scheme = parts.scheme.ok_or_else(|| refuse(&format!("got {url:?} without http:// or https://")))?;
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            Err(refuse(&format!("got the scheme {:?}", scheme.as_str())))?;
        }
        let authority = parts.authority.ok_or_else(|| refuse(&format!("got {url:?} without a host")))?;
        if authority.host().is_empty() {
            Err(refuse(&format!("got {url:?} without a host")))?;
        }
        let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Base { scheme, authority, prefix: path.path().trim_end_matches('/').to_owned() })
    }

    /// Returns the address of `path`, which begins with a slash and is encoded already.
    pub fn join(&self, path: &str) -> Result<Uri> {
        let uri = if self.prefix.is_empty() { path.to_owned() } else { format!("{}{path}", self.prefix) };
        let refuse =
            |error: &dyn std::fmt::Display| Invalid::new("path", format!("expected a path, got {path:?}: {error}"));
        let path_and_query = PathAndQuery::try_from(uri).map_err(|error| refuse(&error))?;
        let built = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path_and_query)
            .build();
        Ok(built.map_err(|error| refuse(&error))?)
    }
}

/// Nodes of one cluster, each of which can serve any request. All users of this list share one node, until it does not
/// reply.
#[derive(Debug)]
pub(super) struct Bases {
    all: Vec<Base>,
    current: AtomicUsize,
}

impl Bases {
    /// Parses addresses separated by commas.
    pub fn parse(urls: &str) -> Result<Self> {
        let all = urls.split(',').map(Base::parse).collect::<Result<Vec<Base>>>()?;
        Ok(Bases { all, current: AtomicUsize::new(0) })
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the node to use now, and its place.
    pub fn current(&self) -> (usize, &Base) {
        let place = self.current.load(Ordering::Relaxed) % self.all.len();
        (place, &self.all[place])
    }

    /// Moves from the node at `place`, which does not reply, to the next, unless another caller has already done so.
    pub fn leave(&self, place: usize) {
        let next = (place + 1) % self.all.len();
        // Fails if another caller has moved.
        let _ = self.current.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl std::fmt::Display for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_path_and_a_closing_slash() {
        for (url, job) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000/v1/jobs?limit=1"),
            ("http://localhost:3000/", "http://localhost:3000/v1/jobs?limit=1"),
            ("https://example.com/convoke/", "https://example.com/convoke/v1/jobs?limit=1"),
            ("http://[::1]:3000", "http://[::1]:3000/v1/jobs?limit=1"),
        ] {
            let base = Base::parse(url).expect(url);
            assert_eq!(base.join("/v1/jobs?limit=1").expect("joins").to_string(), job);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_was_expected() {
        for url in
            ["", "localhost", "127.0.0.1:3000", "redis://localhost", "/v1", "http://", "http://a/?b", "http://a b"]
        {
            let error = Base::parse(url).expect_err(url).to_string();
            assert!(error.starts_with("url: expected an address such as http://127.0.0.1:3000"), "{url}: {error}");
        }
    }

    #[test]
    fn of_several_addresses_all_go_to_one_until_it_is_left() {
        let bases = Bases::parse("http://a:1, http://b:2/x,https://c").expect("addresses");
        let now = || bases.current().1.to_string();
        assert_eq!((bases.len(), now()), (3, "http://a:1".to_owned()));
        bases.leave(0);
        bases.leave(0);
        assert_eq!(now(), "http://b:2/x", "two that fail together go on by one");
        bases.leave(1);
        bases.leave(2);
        assert_eq!(now(), "http://a:1");
        assert!(Bases::parse("http://a:1,").is_err());
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        let error = Base::parse("http://user:secret@host").expect_err("refused").to_string();
        assert!(error.contains("token") && !error.contains("secret"), "{error}");
        let error = Base::parse("http://host/?token=secret").expect_err("refused").to_string();
        assert!(error.contains("a query") && !error.contains("secret"), "{error}");
    }
}
