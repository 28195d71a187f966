//! Small charts, drawn on the server as SVG: they need no script, and scale with the page.

use std::fmt::{self, Display, Write};

use askama::filters::HtmlSafe;

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 48.0;

/// A line over time with the area below it.
#[derive(Debug, Clone)]
pub struct Sparkline {
    /// The values, oldest first, in equal steps of time.
    values: Vec<f64>,
    /// The class that colours it.
    class: &'static str,
}

impl Sparkline {
    pub fn new(values: Vec<f64>, class: &'static str) -> Self {
        Sparkline { values, class }
    }
}

impl Display for Sparkline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let highest = self.values.iter().copied().fold(1.0_f64, f64::max);
        let step = WIDTH / (self.values.len().max(2) - 1) as f64;
        let mut line = String::new();
        for (place, value) in self.values.iter().enumerate() {
            let command = if place == 0 { 'M' } else { 'L' };
            let y = HEIGHT - 1.0 - (HEIGHT - 3.0) * (value.max(0.0) / highest);
            write!(line, "{command}{:.1} {y:.1}", place as f64 * step)?;
        }
        let class = self.class;
        write!(f, r#"<svg class="spark {class}" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" "#)?;
        f.write_str(r#"aria-hidden="true" focusable="false">"#)?;
        if !line.is_empty() {
            write!(
                f,
                r#"<path class="area" d="{line}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z"/><path class="line" d="{line}"/>"#
            )?;
        }
        f.write_str("</svg>")
    }
}

impl HtmlSafe for Sparkline {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_point_for_each_value_and_stays_in_its_box() {
        let drawn = Sparkline::new(vec![0.0, 5.0, 10.0], "good").to_string();
        assert!(drawn.contains("M0.0 47.0L120.0 24.5L240.0 2.0"), "{drawn}");
        assert!(!Sparkline::new(Vec::new(), "good").to_string().contains("path"));
    }
}
