//! The keys of files in a bucket.
//!
//! A name of plain characters is part of a key unchanged, as s3db.js writes it. Any other byte is written as `%XX`, so
//! that no name can leave its folder, and is decoded to the same name.

use convoke_core::Result;
use convoke_core::error::Invalid;
use convoke_core::limits::NAME_BYTES_MAX;
use object_store::path::Path;

/// The limit of S3. The prefix, a namespace and a member are in one key, and each byte of a name that is not plain
/// takes three.
const KEY_BYTES_MAX: usize = 1_024;

const WORKER: &str = "worker=";
const SUFFIX: &str = ".json";

/// The folder of a namespace.
#[derive(Debug, Clone)]
pub(super) struct Folder(String);

impl Folder {
    /// `prefix` is empty, or has neither a first nor a last slash.
    pub fn new(prefix: &str, namespace: &str) -> Result<Self> {
        let namespace = encode("namespace", namespace)?;
        let slash = if prefix.is_empty() { "" } else { "/" };
        Ok(Folder(format!("{prefix}{slash}plugin=coordinator/namespace={namespace}")))
    }

    pub fn state(&self) -> Result<Path> {
        self.path("namespace", "state.json")
    }

    pub fn metadata(&self) -> Result<Path> {
        self.path("namespace", "metadata.json")
    }

    pub fn checkpoint(&self) -> Result<Path> {
        self.path("namespace", "checkpoint.json")
    }

    pub fn workers(&self) -> Result<Path> {
        self.path("namespace", "workers")
    }

    pub fn worker(&self, member: &str) -> Result<Path> {
        self.path("member", &format!("workers/{WORKER}{}{SUFFIX}", encode("member", member)?))
    }

    /// `field` is named by the error if the key is too long.
    fn path(&self, field: &str, name: &str) -> Result<Path> {
        let key = format!("{}/{name}", self.0);
        if key.len() > KEY_BYTES_MAX {
            let message = format!("expected names that make a key of at most {KEY_BYTES_MAX} bytes, got {}", key.len());
            return Err(Invalid::new(field, message).into());
        }
        Path::parse(&key)
            .map_err(|error| Invalid::new("leases.url", format!("expected a prefix for keys: {error}")).into())
    }
}

/// Returns whether a member is one of s3db.js: each of its processes is on the roster under such an id, beside those of
/// its plugins.
pub(super) fn is_foreign(member: &str) -> bool {
    member.starts_with("gcs-")
}

/// Returns the member of a file, if it is a member's.
pub(super) fn member(path: &Path) -> Option<String> {
    let name = path.filename()?.strip_prefix(WORKER)?.strip_suffix(SUFFIX)?;
    if name.is_empty() || name.len() > 3 * NAME_BYTES_MAX {
        return None;
    }
    Some(decode(name))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:@=+,!".contains(&byte)
}

fn encode(field: &str, name: &str) -> Result<String> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let message = format!("expected a name of 1 to {NAME_BYTES_MAX} bytes, got {} bytes", name.len());
        return Err(Invalid::new(field, message).into());
    }
    let mut encoded = String::with_capacity(name.len());
    for &byte in name.as_bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(encoded)
}

/// The inverse of `encode`; other text is returned unchanged.
fn decode(name: &str) -> String {
    let bytes = name.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| name.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).unwrap_or_else(|_| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_where_the_published_system_has_them() {
        let folder = Folder::new("some/prefix", "default").expect("a namespace");
        let keys = [folder.state(), folder.worker("pod-1"), folder.metadata(), folder.checkpoint()];
        let keys = keys.map(|key| key.expect("a key").to_string());
        assert_eq!(keys[0], "some/prefix/plugin=coordinator/namespace=default/state.json");
        assert_eq!(keys[1], "some/prefix/plugin=coordinator/namespace=default/workers/worker=pod-1.json");
        let bare = Folder::new("", "default").expect("a namespace").state().expect("a key");
        assert_eq!(bare.to_string(), "plugin=coordinator/namespace=default/state.json");
    }

    #[test]
    fn any_name_comes_back_from_its_key_and_stays_in_its_folder() {
        let folder = Folder::new("p", "a/../b").expect("a namespace");
        assert_eq!(folder.state().expect("a key").parts().count(), 4);
        let long = "é".repeat(127);
        for name in ["a", "..", "a/b", "a b", "100%", "%41", "ä€😀", "a\nb", "worker=x.json", "-", long.as_str()] {
            let key = folder.worker(name).expect("a key");
            assert_eq!(key.parts().count(), 5, "{key}");
            assert_eq!(member(&key).as_deref(), Some(name), "{key}");
        }
        for name in ["", "x".repeat(256).as_str()] {
            assert!(folder.worker(name).is_err());
        }
    }

    #[test]
    fn a_name_that_makes_too_long_a_key_is_refused() {
        let plain = Folder::new("p", &"n".repeat(255)).expect("a namespace");
        assert!(plain.worker(&"é".repeat(100)).is_ok(), "600 bytes and the rest");
        let long = "é".repeat(127);
        let folder = Folder::new("p", &long).expect("a namespace");
        assert!(folder.state().is_ok() && folder.worker("a").is_ok(), "it has room for short names");
        let error = folder.worker(&long).expect_err("1,524 bytes of names").to_string();
        assert!(error.contains("member") && error.contains("1024"), "{error}");
        let error =
            Folder::new(&"p/".repeat(500), "a").expect("a namespace").state().expect_err("too long").to_string();
        assert!(error.contains("namespace"), "{error}");
    }

    #[test]
    fn files_of_nobody_are_passed_over() {
        for name in ["workers/README.md", "workers/worker=.json", "workers/worker=a.txt", "workers/a.json"] {
            assert_eq!(member(&Path::parse(name).expect("a key")), None, "{name}");
        }
        let raw = Path::parse("workers/worker=a%zzb%.json").expect("a key");
        assert_eq!(member(&raw).as_deref(), Some("a%zzb%"), "not encoded by us");
    }
}
