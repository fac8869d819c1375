//! How long a recording is, before anybody has listened to it.

/// Bytes of a second of packed speech: at the least, and as it is usually sent.
const LEAST: u64 = 1_500;
const USUAL: u64 = 8_000;
/// Samples of more bytes a second than studios make are not believed.
const MOST_OF_SAMPLES: u64 = 1_200_000;

/// What it cannot be longer than, as far as one can tell.
pub fn most_ms(recording: &[u8]) -> u64 {
    samples_ms(recording).unwrap_or(recording.len() as u64 * 1_000 / LEAST)
}

/// What it is likely to be.
pub fn usual_ms(recording: &[u8]) -> u64 {
    samples_ms(recording).unwrap_or(recording.len() as u64 * 1_000 / USUAL)
}

/// The length of plain samples, by the head of the file.
fn samples_ms(recording: &[u8]) -> Option<u64> {
    let [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', b'f', b'm', b't', b' ', head @ ..] = recording
    else {
        return None;
    };
    let short = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    // Whole numbers, fractions, and those with a longer head; anything else is packed.
    let is_plain = matches!(short(4)?, 1 | 3 | 0xfffe);
    // What a block is said to have is a claim; who plays it goes by channels and bits.
    let block = u64::from(short(6)?) * u64::from(short(18)?).div_ceil(8);
    let rate = u64::from(long(8)?) * block;
    let is_sound = is_plain && u64::from(short(16)?) == block && (1..=MOST_OF_SAMPLES).contains(&rate);
    is_sound.then(|| (recording.len() as u64 * 1_000).div_ceil(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of silence: 16 000 samples of two bytes, with the usual head of 44.
    fn wav(format: u16, rate: u32) -> Vec<u8> {
        let mut out = b"RIFF\0\0\0\0WAVEfmt ".to_vec();
        out.extend(16_u32.to_le_bytes());
        out.extend(format.to_le_bytes());
        out.extend(1_u16.to_le_bytes());
        out.extend(rate.to_le_bytes());
        out.extend((rate.wrapping_mul(2)).to_le_bytes());
        out.extend(2_u16.to_le_bytes());
        out.extend(16_u16.to_le_bytes());
        out.extend(b"data\0\0\0\0");
        out.resize(44 + 32_000, 0);
        out
    }

    #[test]
    fn samples_say_how_long_they_are() {
        // 32 044 bytes at 32 000 a second.
        assert_eq!((most_ms(&wav(1, 16_000)), usual_ms(&wav(1, 16_000))), (1_002, 1_002));
        assert_eq!(most_ms(&wav(1, 8_000)), 2_003);
    }

    #[test]
    fn what_is_packed_or_odd_goes_by_its_size() {
        // A block of 150 bytes in place of two would make it shorter.
        let mut lying = wav(1, 16_000);
        lying[32] = 150;
        for recording in [wav(2, 16_000), wav(1, 0), wav(1, u32::MAX), vec![0xff; 32_044], lying] {
            assert_eq!((most_ms(&recording), usual_ms(&recording)), (21_362, 4_005));
        }
        assert_eq!((most_ms(b""), usual_ms(b"RIFF")), (0, 0));
        assert_eq!(most_ms(b"RIFF\0\0\0\0WAVEfmt \x10"), 11);
    }
}
