//! The input of a call as it comes: pieces of JSON, which are looked at once each. Long inputs come in thousands of them.

use super::blocks::is_object;

/// How far a text has come on the way to one whole object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing but blanks so far.
    #[default]
    Before,
    /// Inside of so many brackets.
    Inside(usize),
    /// In a text inside of so many brackets; whether the next character is escaped.
    Quoted(usize, bool),
    /// The last bracket was closed. Whether what it closed is an object was looked at then.
    Closed(bool),
    /// No object begins like this, or something follows it.
    Never,
}

impl State {
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Before | Self::Closed(_), b' ' | b'\t' | b'\n' | b'\r') => self,
            (Self::Before, b'{') => Self::Inside(1),
            (Self::Before | Self::Closed(_) | Self::Never, _) => Self::Never,
            (Self::Inside(depth), b'"') => Self::Quoted(depth, false),
            (Self::Inside(depth), b'{' | b'[') => Self::Inside(depth + 1),
            (Self::Inside(1), b'}' | b']') => Self::Closed(false),
            (Self::Inside(depth), b'}' | b']') => Self::Inside(depth - 1),
            (Self::Inside(_), _) => self,
            (Self::Quoted(depth, true), _) => Self::Quoted(depth, false),
            (Self::Quoted(depth, false), b'\\') => Self::Quoted(depth, true),
            (Self::Quoted(depth, false), b'"') => Self::Inside(depth),
            (Self::Quoted(..), _) => self,
        }
    }
}

/// Everything that has come of a call's input.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    text: String,
    state: State,
}

impl Arguments {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub fn push(&mut self, piece: &str) {
        for (place, byte) in piece.bytes().enumerate() {
            let was_inside = matches!(self.state, State::Inside(_));
            self.state = self.state.after(byte);
            if was_inside && matches!(self.state, State::Closed(_)) {
                // Brackets match in much that is no JSON; this is the one time that all of it is parsed.
                self.text.push_str(&piece[..=place]);
                self.state = State::Closed(is_object(&self.text));
                self.text.truncate(self.text.len() - place - 1);
            }
        }
        self.text.push_str(piece);
    }

    /// Whether it is one whole JSON object.
    pub fn is_object(&self) -> bool {
        self.state == State::Closed(true)
    }

    fn replace(&mut self, text: &str) {
        let mut made = Self::default();
        made.push(text);
        *self = made;
    }

    /// An empty object before the real one is none; with some upstreams every input begins like that.
    pub fn skip_empty_object(&mut self) {
        if let Some(rest) = self.text.trim().strip_prefix("{}").filter(|rest| rest.trim_start().starts_with('{')) {
            let rest = rest.to_owned();
            self.replace(&rest);
        }
    }

    /// Of the same input twice one is enough.
    pub fn halve(&mut self) {
        let half = self.text.len() / 2;
        if self.text.len().is_multiple_of(2)
            && self.text.is_char_boundary(half)
            && self.text[..half] == self.text[half..]
            && is_object(&self.text[..half])
        {
            let half = self.text[..half].to_owned();
            self.replace(&half);
        }
    }

    /// What can be mended before anything of it is written: no input at all is an empty one, and of the same input twice
    /// one is enough.
    pub fn repair(&mut self) {
        if self.text.trim().is_empty() {
            return self.replace("{}");
        }
        match self.text.trim().strip_prefix("{}").filter(|rest| is_object(rest)).map(ToOwned::to_owned) {
            Some(rest) => self.replace(&rest),
            None => self.halve(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After every piece, whatever the pieces are, it says what parsing all of it would say.
    #[test]
    fn it_knows_an_object_without_parsing_it_again() {
        let texts = [
            r#"{"a":{"b":[1,{"c":"}\"]\\"}]}} "#,
            " \n{}\t",
            "{}{}",
            r#"{"a":1}x"#,
            r#"{"a":]}"#,
            "{]",
            r#"{"a":1]"#,
            "[1]",
            "x{}",
            "",
            r#"{"潮":"\u6f6e\\"}"#,
            r#"{"a":"\"}"#,
        ];
        for text in texts {
            for step in [1, 2, 3, 100] {
                let mut arguments = Arguments::default();
                let characters: Vec<char> = text.chars().collect();
                for piece in characters.chunks(step) {
                    arguments.push(&piece.iter().collect::<String>());
                    let so_far = arguments.as_str().to_owned();
                    assert_eq!(arguments.is_object(), is_object(&so_far), "{so_far}");
                }
                assert_eq!(arguments.as_str(), text);
            }
        }
    }
}
