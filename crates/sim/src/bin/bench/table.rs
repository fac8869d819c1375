//! Tables on a terminal: the first column to the left, figures to the right.

pub struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self { title: title.to_owned(), rows: vec![columns.iter().map(|&name| name.to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let length = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
        let width = |column| self.rows.iter().map(|row| length(row, column)).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = format!("\n{}\n", self.title);
        for (index, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            out.push('\n');
            if index == 0 {
                let rule = widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>();
                out.push_str(rule.join("  ").trim_end());
                out.push('\n');
            }
        }
        out
    }
}

/// A figure with as many digits as it deserves; a dash for one that is not there.
pub fn figure(value: Option<f64>) -> String {
    match value {
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) if value.is_finite() => format!("{value:.2}"),
        _ => "-".to_owned(),
    }
}

/// Where a figure stands against what it must be and what it should be.
pub fn verdict(value: Option<f64>, must: f64, goal: f64) -> &'static str {
    match value {
        Some(value) if value <= goal => "goal",
        Some(value) if value <= must => "ok",
        Some(_) => "OVER",
        None => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new("t", &["work", "ms"]);
        table.row(vec!["a".into(), figure(Some(123.4))]);
        table.row(vec!["longer".into(), figure(None)]);
        assert_eq!(table.text(), "\nt\nwork     ms\n------  ---\na       123\nlonger    -\n");
    }
}
