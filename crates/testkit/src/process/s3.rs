//! A real S3 server of one's own: on a free port, in a temporary directory, gone with the test.
//!
//! It is `ministack`, which has conditional writes of which exactly one of many wins. `scripts/test` installs it into the
//! build directory; `CONVOKE_TEST_S3_SERVER` names it where it is elsewhere. It keeps everything in memory, so that to start
//! it again is to start it empty, and it checks no signatures: requests here are written by hand, without any.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::http::{Http, HttpResponse};
use super::program::{Launch, Program, Signal, free_port};

/// Another process may take a port between its being found free and its being used.
const PORTS_TRIED_MAX: usize = 5;

pub struct S3Server {
    bucket: S3Bucket,
    _directory: TempDir,
    program: Program,
}

/// The bucket of a test, as seen by somebody who is not under test.
#[derive(Debug, Clone)]
pub struct S3Bucket {
    http: Http,
}

/// The name of the one bucket that there is.
const BUCKET: &str = "convoke-test";

/// The condition of a write.
#[derive(Debug, Clone, Copy)]
pub enum IfMatch<'a> {
    Any,
    None,
    Tag(&'a str),
}

fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("CONVOKE_TEST_S3_SERVER") {
        return named.into();
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    let installed = target.join("s3-server/bin/ministack");
    if installed.exists() { installed } else { PathBuf::from("ministack") }
}

impl S3Server {
    pub async fn start() -> S3Server {
        let directory = TempDir::with_prefix("convoke-s3-").expect("a temporary directory");
        for _ in 0..PORTS_TRIED_MAX {
            let port = free_port();
            let Some(program) = launch(port, directory.path()).await else { continue };
            let bucket = S3Bucket { http: Http::new(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) };
            let made = bucket.http.send_bytes("PUT", &format!("/{BUCKET}"), Some(b"")).await;
            assert_eq!(made.expect("a response").status, 200, "a bucket is made");
            return S3Server { bucket, _directory: directory, program };
        }
        panic!("the S3 server did not start on any of {PORTS_TRIED_MAX} ports: scripts/test installs it");
    }

    pub fn address(&self) -> SocketAddr {
        self.bucket.http.address()
    }

    pub fn bucket(&self) -> &S3Bucket {
        &self.bucket
    }

    /// Returns the address of leases in this bucket.
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// The variables by which it is found.
    pub fn variables(&self) -> Vec<(String, String)> {
        Self::variables_for(self.address())
    }

    /// The same, by way of a proxy.
    pub fn variables_for(address: SocketAddr) -> Vec<(String, String)> {
        let endpoint = format!("http://{address}");
        let variables = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_REGION", "us-east-1"),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// It accepts connections, and does not respond.
    pub fn pause(&self) {
        self.program.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.program.signal(Signal::CONT);
    }
}

async fn launch(port: u16, directory: &Path) -> Option<Program> {
    let settings = [
        ("BIND_HOST", "127.0.0.1".to_owned()),
        ("GATEWAY_PORT", port.to_string()),
        ("SERVICES", "s3".to_owned()),
        ("LOG_LEVEL", "INFO".to_owned()),
        ("TMPDIR", directory.display().to_string()),
    ];
    let mut program = Program::start(&Launch {
        name: "ministack".into(),
        binary: binary(),
        args: Vec::new(),
        env: settings.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        directory: directory.to_owned(),
    });
    program.line("that it is ready", |line| line.contains("Running on http").then_some(())).await?;
    Some(program)
}

impl S3Bucket {
    /// `None` where there is no such file.
    pub async fn get(&self, key: &str) -> Option<(Value, String)> {
        let response = self.http.get(&format!("/{BUCKET}/{key}")).await.expect("a response");
        match response.status {
            404 => None,
            _ => Some((response.expect(200), response.header("etag").expect("a tag").to_owned())),
        }
    }

    /// Whether it was written; not where another was first.
    pub async fn put(&self, key: &str, body: &[u8], condition: IfMatch<'_>) -> bool {
        let condition = match condition {
            IfMatch::Any => String::new(),
            IfMatch::None => "if-none-match: *\r\n".to_owned(),
            IfMatch::Tag(etag) => format!("if-match: {etag}\r\n"),
        };
        let headers = format!(
            "connection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{condition}\r\n",
            body.len()
        );
        let mut request = self.http.head("PUT", &format!("/{BUCKET}/{key}"), &headers).into_bytes();
        request.extend_from_slice(body);
        let response = self.http.send_raw(&request).await.expect("a response");
        assert!(matches!(response.status, 200 | 404 | 412), "{}: {}", response.status, response.text());
        response.status == 200
    }

    pub async fn delete(&self, key: &str) {
        let response = self.http.send_bytes("DELETE", &format!("/{BUCKET}/{key}"), None).await;
        assert_eq!(response.expect("a response").status, 204);
    }

    /// Keys under a prefix, each with when it was last written.
    pub async fn list(&self, prefix: &str) -> Vec<(String, jiff::Timestamp)> {
        let prefix = prefix.replace('/', "%2F").replace('=', "%3D");
        let path = format!("/{BUCKET}?list-type=2&prefix={prefix}");
        listed(&self.http.get(&path).await.expect("a response"))
    }
}

fn listed(response: &HttpResponse) -> Vec<(String, jiff::Timestamp)> {
    assert_eq!(response.status, 200, "{}", response.text());
    let text = response.text();
    let entries = text.split("<Contents>").skip(1);
    let field = |entry: &str, name: &str| {
        let (_, rest) = entry.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0.to_owned())
    };
    let entries = entries.map(|entry| {
        let modified = field(entry, "LastModified").and_then(|text| text.parse().ok());
        (field(entry, "Key").expect("a key"), modified.expect("an instant"))
    });
    entries.collect()
}
