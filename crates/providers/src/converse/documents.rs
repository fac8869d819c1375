//! Names of documents. The upstream takes few characters in them, and none of them twice.

use std::collections::HashSet;

const LONGEST: usize = 200;
const ENDINGS: [&str; 9] = ["pdf", "txt", "csv", "doc", "docx", "xls", "xlsx", "html", "md"];

/// The names given so far in one request.
#[derive(Debug, Default)]
pub(super) struct DocumentNames {
    taken: HashSet<String>,
    count: usize,
}

impl DocumentNames {
    /// A name made of the title: only what is allowed, short, and not used before.
    pub fn name(&mut self, title: Option<&str>) -> String {
        self.count += 1;
        let title = title.unwrap_or_default();
        let stem = title
            .rsplit_once('.')
            .filter(|(_, ending)| ENDINGS.contains(&ending.to_ascii_lowercase().as_str()))
            .map_or(title, |(stem, _)| stem);
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || " ()[]-".contains(letter);
        let plain: String = stem
            .chars()
            .map(|letter| if letter.is_whitespace() { ' ' } else { letter })
            .filter(|l| allowed(*l))
            .collect();
        let mut plain = plain.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        if plain.is_empty() {
            plain = format!("document-{}", self.count);
        }
        let mut name = shortened(&plain, LONGEST);
        let mut number = 2;
        while !self.taken.insert(name.clone()) {
            let ending = format!("-{number}");
            name = shortened(&plain, LONGEST - ending.len()) + &ending;
            number += 1;
        }
        name
    }
}

fn shortened(plain: &str, longest: usize) -> String {
    // All of it is ASCII by now.
    plain.chars().take(longest).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p52_names_are_plain_short_and_unique() {
        let mut names = DocumentNames::default();
        let mut name = |title: &str| names.name(Some(title));
        assert_eq!(name("Q3 tides.v2.pdf"), "Q3 tidesv2");
        assert_eq!(name("Q3 \"tides\".v2.PDF"), "Q3 tidesv2-2");
        assert_eq!(name("Q3  tides\tv2"), "Q3 tides v2");
        assert_eq!(name("報告.pdf"), "document-4");
        assert_eq!(name("Q3 tidesv2"), "Q3 tidesv2-3");
        let long = name(&"a".repeat(300));
        assert_eq!(long.len(), 200);
        let again = name(&"a".repeat(300));
        assert!(again.len() == 200 && again.ends_with("a-2"), "{again}");
        assert_eq!(names.name(None), "document-8");
    }
}
