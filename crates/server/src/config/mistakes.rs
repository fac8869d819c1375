//! Mistakes of a configuration, as many as can be found at once: whoever has to start again after each of them gives up.

use std::fmt;

#[derive(Debug, Default)]
pub struct Mistakes(Vec<anyhow::Error>);

impl Mistakes {
    /// Notes what is wrong; nothing then.
    pub fn note<T>(&mut self, result: anyhow::Result<T>) -> Option<T> {
        result.map_err(|mistake| self.0.push(mistake)).ok()
    }

    /// The same with something in its place, so that the rest can be looked at. What is made of it is never used.
    pub fn value<T: Default>(&mut self, result: anyhow::Result<T>) -> T {
        self.note(result).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses if there was anything.
    pub fn check(self) -> anyhow::Result<()> {
        match self.error() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// All of them as one; a single one as it is, for those who look into it.
    pub fn error(mut self) -> Option<anyhow::Error> {
        match self.0.len() {
            0 => None,
            1 => self.0.pop(),
            _ => Some(anyhow::Error::msg(self.to_string())),
        }
    }
}

/// One line for each.
impl fmt::Display for Mistakes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, mistake) in self.0.iter().enumerate() {
            if place > 0 {
                out.write_str("\n")?;
            }
            write!(out, "{mistake:#}")?;
        }
        Ok(())
    }
}
