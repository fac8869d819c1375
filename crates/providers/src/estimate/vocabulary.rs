//! The vocabulary that tokens are counted with.
//!
//! The package that splits texts brings it ready for use: 15 MB, a third of the whole program, for what many gateways never
//! do. Here only the list of its tokens is kept, and the rest is made of it at the first count. That takes about half a
//! second, once: who counts must not keep others waiting meanwhile.

use std::io::Read as _;
use std::sync::LazyLock;

use bpe_openai::Tokenizer;
use bpe_openai::byte_pair_encoding::BytePairEncoding;
use flate2::read::DeflateDecoder;

/// Each token behind its length, in the order of their numbers, deflated. `cargo run -p tidegate-providers --example
/// vocabulary` writes it.
const TOKENS: &[u8] = include_bytes!("vocabulary.bin");

/// Spreads the hashes of these tokens so that no two are the same.
const HASH_FACTOR: u64 = 17_846_336_922_010_275_747;

/// How a text is cut before its pieces are tokens; of those marked, the last character belongs to the next piece.
const PIECES: [(&str, bool); 3] = [
    (
        concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+$",
        ),
        false,
    ),
    (r"\s+\s", true),
    (r"\s+", false),
];

static VOCABULARY: LazyLock<Tokenizer> = LazyLock::new(|| {
    let words = BytePairEncoding::from_dictionary(tokens(), Some(HASH_FACTOR));
    Tokenizer::new_lookahead(words, &PIECES, false).expect("the patterns are written here")
});

/// The tokens of a text.
pub(super) fn count(text: &str) -> u64 {
    // Nothing is nothing in any vocabulary.
    if text.is_empty() { 0 } else { VOCABULARY.count(text) as u64 }
}

fn tokens() -> Vec<Vec<u8>> {
    let mut list = Vec::new();
    DeflateDecoder::new(TOKENS).read_to_end(&mut list).expect("the list was deflated whole");
    let mut tokens = Vec::new();
    let mut rest = list.as_slice();
    while let Some((length, behind)) = rest.split_first() {
        let (token, others) = behind.split_at(usize::from(*length));
        tokens.push(token.to_vec());
        rest = others;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_list_holds_the_tokens_of_the_package() {
        let known = &bpe_openai::cl100k_base().bpe;
        let tokens = tokens();
        assert_eq!(
            tokens.len(),
            known.num_tokens(),
            "`cargo run -p tidegate-providers --example vocabulary` renews it"
        );
        for (number, token) in (0..).zip(&tokens) {
            assert_eq!(token, known.token_bytes(number), "token {number}");
        }
    }

    #[test]
    fn texts_are_split_as_the_package_splits_them() {
        let known = bpe_openai::cl100k_base();
        let kinds = [
            "[ \t\r\n]{0,6}",
            "[a-zA-Z]{1,12}",
            "[0-9]{1,9}",
            "'(s|re|LL|x)",
            "\\PC{1,8}",
            "[!-/:-@]{1,5}",
            "\u{3000}+",
        ];
        let piece = kinds.map(|kind| kind.prop_map(|text| text).boxed());
        let texts = proptest::collection::vec(proptest::strategy::Union::new(piece), 0..24);
        proptest!(|(pieces in texts)| {
            let text = pieces.concat();
            prop_assert_eq!(VOCABULARY.encode(text.as_str()), known.encode(text.as_str()));
            prop_assert_eq!(count(&text), known.count(text.as_str()) as u64);
        });
    }
}
