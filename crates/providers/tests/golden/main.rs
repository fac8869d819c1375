//! Translation by example: a folder under `cases/PROTOCOL/` is a case, and what lies in it says what is tried.
//!
//! - `request.json` in the Messages format gives `upstream.json`, or is refused as `case.json` says.
//! - `answer.json` of the upstream gives `message.json`, or a fault.
//! - `stream.txt` of the upstream gives `events.txt`, however it is cut into pieces, or a fault.
//! - `case.json` may say: `card` (members that differ from the careful default) or `provider` (whose card it is),
//!   `model`, `stream`, `warnings`, `refused`, `fault`, `show_thinking`, `guarded`, `names`, `taken`, `serial`,
//!   `prefix`, `think_tags`, `only_stop`, `input_estimate`.
//!   Gemini and Converse begin with the card of their own provider.
//! - For Converse, `stream.txt` has a line `EVENT {json}` for each frame, and `!EXCEPTION {json}` for a failure.
//!
//! In what is expected, `minted` stands for the number of a call that was made up here, and a signature of ours is
//! written as `tgs1 KIND DATA`.

#![expect(clippy::unwrap_used, reason = "a case that cannot be read is a failed test")]

mod cases;
mod hostile;
mod run;
