//! The protocol is described where it is built.

use bytes::Bytes;
use tidegate_core::Timestamp;
use tidegate_wire::messages::Request;

use crate::fault::{Class, Fault};
use crate::translate::{Context, Decode, Outgoing, Stream, Target, Unsupported};

pub const PROTOCOL: &str = "gemini";

pub fn request(_: &Request, _: &Target<'_>) -> Result<Outgoing, Unsupported> {
    Err(Unsupported::new("model", "this protocol is not spoken yet"))
}

pub fn message(_: &[u8], _: &Context, _: Timestamp) -> Result<(Bytes, Vec<String>), Fault> {
    Err(Fault::in_answer(Class::BadResponse))
}

pub struct Decoder;

impl Decoder {
    pub fn new(_: Context, _: Timestamp) -> Self {
        Self
    }
}

impl Decode for Decoder {
    fn feed(&mut self, _: &str, _: &[u8], _: &mut Stream) -> Result<(), Fault> {
        Err(Fault::in_answer(Class::BadResponse))
    }

    fn end(&mut self, _: &mut Stream) -> Result<(), Fault> {
        Err(Fault::in_answer(Class::BadResponse))
    }
}
