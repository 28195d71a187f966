//! Where the server is reached, and what it shows there.

use convoke_core::Invalid;

use super::dashboard::DashboardSettings;

/// The public path of a node, and its dashboard.
#[derive(Debug, Clone, Default)]
pub struct Site {
    /// The path under which a proxy serves the node, such as `/convoke`; empty if it is the root, or the path under which
    /// the routes are nested. Requests may arrive with it or without it.
    pub base_path: String,
    /// The pages for people.
    pub dashboard: DashboardSettings,
}

impl Site {
    /// Rejects a path that is none, with the name of the key.
    pub fn check(&self) -> Result<(), Invalid> {
        self.dashboard.check()?;
        let path = self.base_path.as_str();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
        let is_path =
            path.starts_with('/') && !path.ends_with('/') && !path.contains("//") && path.chars().all(is_plain);
        if path.is_empty() || is_path {
            return Ok(());
        }
        let message = format!("expected a path such as \"/convoke\", without a slash at its end, got {path:?}");
        Err(Invalid::new("http.base_path", message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_is_a_path_of_plain_letters() {
        let check = |base_path: &str| Site { base_path: base_path.into(), ..Site::default() }.check();
        for path in ["", "/convoke", "/ops/convoke-1"] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
        for path in ["convoke", "/", "/convoke/", "//convoke", "/a b", "/a?b", "/<script>", "https://host/convoke"] {
            assert_eq!(check(path).expect_err(path).field, "http.base_path");
        }
    }
}
