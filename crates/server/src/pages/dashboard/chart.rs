//! Bars over time, as shapes that a page draws.

/// One bar, in units of the drawing.
pub struct Bar {
    pub x: u32,
    pub y: u32,
    pub height: u32,
    pub title: String,
}

pub struct Chart {
    pub title: &'static str,
    pub bars: Vec<Bar>,
    /// How wide a bar is.
    pub thickness: u32,
    /// The largest figure, as it is read.
    pub top: String,
    /// Under the first and the last bar.
    pub ends: [String; 2],
}

/// One figure: its label, how much, and how it is read.
pub struct Figure {
    pub label: String,
    pub value: f64,
    pub text: String,
}

pub const WIDTH: u32 = 720;
pub const HEIGHT: u32 = 120;

impl Chart {
    pub fn of(title: &'static str, figures: &[Figure]) -> Self {
        let most = figures.iter().map(|figure| figure.value).fold(0.0, f64::max);
        let step = WIDTH / u32::try_from(figures.len().max(1)).unwrap_or(WIDTH).min(WIDTH);
        let scaled = |value: f64| match most > 0.0 {
            // What is not nothing is seen.
            true if value > 0.0 => ((value / most * f64::from(HEIGHT)) as u32).clamp(1, HEIGHT),
            _ => 0,
        };
        let bar = |(place, figure): (u32, &Figure)| {
            let height = scaled(figure.value);
            Bar { x: place * step, y: HEIGHT - height, height, title: format!("{}: {}", figure.label, figure.text) }
        };
        let largest = figures.iter().max_by(|one, other| one.value.total_cmp(&other.value));
        let end = |figure: Option<&Figure>| figure.map(|figure| figure.label.clone()).unwrap_or_default();
        Self {
            title,
            bars: (0..).zip(figures).map(bar).collect(),
            thickness: (step * 4 / 5).max(1),
            top: largest.map(|figure| figure.text.clone()).unwrap_or_default(),
            ends: [end(figures.first()), end(figures.last())],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64) -> Figure {
        Figure { label: "day".to_owned(), value, text: value.to_string() }
    }

    #[test]
    fn bars_are_as_high_as_their_share_of_the_largest() {
        let chart = Chart::of("t", &[10.0, 5.0, 0.001, 0.0].map(figure));
        let heights: Vec<(u32, u32)> = chart.bars.iter().map(|bar| (bar.height, bar.y)).collect();
        assert_eq!(heights, [(120, 0), (60, 60), (1, 119), (0, 120)]);
        assert_eq!((chart.bars[3].x, chart.thickness, &*chart.top), (540, 144, "10"));
        assert!(Chart::of("t", &[]).bars.is_empty());
    }
}
