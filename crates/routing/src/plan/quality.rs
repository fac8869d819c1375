//! How well the endpoints of a model serve requests with tools, compared with one another.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::order::Entry;

/// The best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quality {
    Good,
    /// Too little is known.
    Unknown,
    /// Far below the others.
    Poor,
}

/// With fewer endpoints there is nothing to compare with.
const LEAST: usize = 4;
/// What a median absolute deviation is multiplied with to be a standard deviation, were figures distributed normally.
const NORMAL: f32 = 1.4826;

type Figure = fn(&Entry<'_>) -> Option<f32>;

/// Judges the endpoints of each model by what is known of them.
pub(super) fn assess(entries: &mut [Entry<'_>]) {
    let signals: [(Figure, f32); 3] = [
        (|entry| entry.vital.throughput.p50, 1.5),
        (|entry| entry.vital.tool_success, 2.0),
        // The operator's own figures have no baseline but one another.
        (|entry| entry.endpoint.quality, 2.0),
    ];
    let mut judged: SmallVec<[Quality; 8]> = SmallVec::from_elem(Quality::Unknown, entries.len());
    for (figure, most) in signals {
        for (place, entry) in entries.iter().enumerate() {
            let peers = entries.iter().filter(|peer| peer.wanted == entry.wanted);
            let peers: SmallVec<[f32; 8]> = peers.filter_map(figure).filter(|figure| figure.is_finite()).collect();
            let (Some(own), true) = (figure(entry), peers.len() >= LEAST) else { continue };
            if is_far_below(own, &peers, most) {
                judged[place] = Quality::Poor;
            } else if judged[place] == Quality::Unknown {
                judged[place] = Quality::Good;
            }
        }
    }
    entries.iter_mut().zip(judged).for_each(|(entry, quality)| entry.quality = quality);
}

/// More than so many deviations below the median. Where most are equal, nothing can be said of the others.
fn is_far_below(own: f32, peers: &[f32], most: f32) -> bool {
    let middle = median(peers.iter().copied());
    let deviation = NORMAL * median(peers.iter().map(|figure| (figure - middle).abs()));
    deviation > 0.0 && (middle - own) / deviation > most
}

fn median(figures: impl Iterator<Item = f32>) -> f32 {
    let mut figures: SmallVec<[f32; 8]> = figures.collect();
    figures.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
    let half = figures.len() / 2;
    if figures.len() % 2 == 1 { figures[half] } else { (figures[half - 1] + figures[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_below_is_told_by_the_median_and_its_deviation() {
        // Median 100; deviations 10, 0, 10, 60 have the median 10, so 14.826 are one deviation.
        let peers = [90.0, 100.0, 110.0, 40.0, 100.0];
        assert_eq!(median(peers.into_iter()), 100.0);
        for (own, most, expected) in
            [(40.0, 1.5, true), (77.0, 1.5, true), (78.0, 1.5, false), (71.0, 2.0, false), (70.0, 2.0, true)]
        {
            assert_eq!(is_far_below(own, &peers, most), expected, "{own}");
        }
        assert!(!is_far_below(1.0, &[5.0, 5.0, 5.0, 1.0], 1.5), "most are equal");
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
    }
}
