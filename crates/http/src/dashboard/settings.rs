//! The section `dashboard` of the configuration.

use std::fmt;

use convoke_core::{Invalid, Secret, sections};
use serde::{Deserialize, Serialize};

/// Upper bound of the name of an instance, in bytes: it is in the header of every page.
const NAME_BYTES_MAX: usize = 64;

sections! {
    /// How the pages look, and whether there are any.
    DashboardSettings {
        /// Whether the pages are served. The API does not depend on it.
        enabled: bool = true,
        /// The name in the header of every page, such as `production`. `None`: the name of the node.
        name: Option<String> = None,
        /// The colour of the header, so that one instance is not mistaken for another.
        color: Color = Color::Slate,
        /// The Redis of the meshes that the page Mesh shows. `None`: the bus, if it is a Redis.
        mesh: Option<Secret> = None,
        /// The names of meshes that the page has links to. Redis does not list them.
        meshes: Vec<String> = Vec::new(),
    }
}

impl DashboardSettings {
    /// Rejects a name that does not fit the header, or that no mesh can have.
    pub fn check(&self) -> Result<(), Invalid> {
        for mesh in &self.meshes {
            convoke_core::ids::check_name("dashboard.meshes", mesh)?;
        }
        let Some(name) = &self.name else { return Ok(()) };
        if name.trim().is_empty() || name.len() > NAME_BYTES_MAX {
            let message =
                format!("expected 1 to {NAME_BYTES_MAX} bytes, got {name:?}; leave it out for the node's name");
            return Err(Invalid::new("dashboard.name", message));
        }
        Ok(())
    }
}

/// A colour of which the style sheet has a variant for light and for dark, each with enough contrast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Color {
    /// The default.
    #[default]
    Slate,
    /// Red.
    Red,
    /// Orange.
    Orange,
    /// Green.
    Green,
    /// Teal.
    Teal,
    /// Blue.
    Blue,
    /// Purple.
    Purple,
    /// Pink.
    Pink,
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Color::Slate => "slate",
            Color::Red => "red",
            Color::Orange => "orange",
            Color::Green => "green",
            Color::Teal => "teal",
            Color::Blue => "blue",
            Color::Purple => "purple",
            Color::Pink => "pink",
        })
    }
}
