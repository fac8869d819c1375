//! Google's models that answer with pictures: an ordinary call that is told so.

use tidegate_core::{Timestamp, Usage};
use tidegate_wire::json::quoted;

use super::{Made, Sent, Wanted, picture, unsupported};
use crate::fault::Fault;
use crate::gemini::inline::{self, Inline, Medium};

/// Options that are known and have no word here.
const WORDLESS: [&str; 8] =
    ["background", "moderation", "output_compression", "output_format", "partial_images", "quality", "size", "user"];

pub(super) fn request(wanted: &Wanted<'_>) -> Result<Sent, Fault> {
    if wanted.n > 1 {
        return Err(unsupported("n must be 1: this provider makes one image at a time"));
    }
    let mut parts = format!(r#"{{"text":{}}}"#, quoted(wanted.prompt));
    for (index, address) in wanted.references.iter().enumerate() {
        let (kind, data) = inline(address).ok_or_else(|| {
            unsupported(format!(
                "input_references[{index}].image_url.url must be a data: address with Base64 for this provider"
            ))
        })?;
        parts.push_str(&format!(r#",{{"inlineData":{{"mimeType":{},"data":{}}}}}"#, quoted(kind), quoted(data)));
    }
    let (mut config, mut image, mut top) = (String::new(), Vec::new(), String::new());
    let mut warnings = Vec::new();
    for (name, value) in wanted.options {
        match name.as_ref() {
            "aspect_ratio" if value.get() == "\"auto\"" => {}
            "aspect_ratio" => image.push(format!(r#""aspectRatio":{}"#, value.get())),
            "resolution" => image.push(format!(r#""imageSize":{}"#, value.get())),
            "seed" => config.push_str(&format!(r#","seed":{}"#, value.get())),
            name if WORDLESS.contains(&name) || inline::OURS.contains(&name) => {
                warnings.push(format!("dropped:{name}"))
            }
            name => top.push_str(&format!(",{}:{}", quoted(name), value.get())),
        }
    }
    if !image.is_empty() {
        config.push_str(&format!(r#","imageConfig":{{{}}}"#, image.join(",")));
    }
    let body = format!(
        r#"{{"contents":[{{"role":"user","parts":[{parts}]}}],"generationConfig":{{"responseModalities":["TEXT","IMAGE"]{config}}}{top}}}"#
    );
    Ok(Sent { body: body.into(), warnings })
}

/// The type and the Base64 of a `data:` address.
fn inline(address: &str) -> Option<(&str, &str)> {
    let (kind, data) = address.strip_prefix("data:")?.split_once(";base64,")?;
    kind.starts_with("image/").then_some((kind, data))
}

pub(super) fn answer(body: &[u8], now: Timestamp) -> Result<Made<'_>, Fault> {
    let Inline { parts, usage } = inline::read(body, Medium::Image, now)?;
    let pictures = parts.into_iter().map(|part| picture(part.data, None)).collect::<Result<Vec<_>, _>>()?;
    let is_counted = usage.is_some();
    let usage = Usage { images_out: pictures.len() as u64, ..usage.unwrap_or_default() };
    Ok(Made { pictures, created: None, usage, is_counted })
}
