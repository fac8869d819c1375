//! Writes the list of tokens that counts are made with, from the package that knows them.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::write::DeflateEncoder;

fn main() -> io::Result<()> {
    let known = &bpe_openai::cl100k_base().bpe;
    let mut list = DeflateEncoder::new(Vec::new(), Compression::best());
    for number in 0..known.num_tokens() {
        let token = known.token_bytes(u32::try_from(number).map_err(io::Error::other)?);
        list.write_all(&[u8::try_from(token.len()).map_err(io::Error::other)?])?;
        list.write_all(token)?;
    }
    let list = list.finish()?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/estimate/vocabulary.bin");
    fs::write(&path, &list)?;
    println!("{} tokens in {} bytes: {}", known.num_tokens(), list.len(), path.display());
    Ok(())
}
