//! Numbers as people read them, for errors and verdicts.

/// `1500000` -> `1.5 ms`.
pub(crate) fn time(ns: u64) -> String {
    let (divisor, unit) = match ns {
        0..=999 => (1.0, "ns"),
        1_000..=999_999 => (1e3, "us"),
        1_000_000..=999_999_999 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", short(ns as f64 / divisor))
}

/// `0.254` -> `25.4 %`.
pub(crate) fn percent(fraction: f64) -> String {
    format!("{} %", short(fraction * 100.0))
}

/// Writes at most two decimals, and no trailing zeros.
fn short(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!(time(512), "512 ns");
        assert_eq!(time(1_024), "1.02 us");
        assert_eq!(time(10_000_000), "10 ms");
        assert_eq!(time(4_194_304_000), "4.19 s");
    }

    #[test]
    fn round_percentages_have_no_decimals() {
        assert_eq!(percent(0.25), "25 %");
        assert_eq!(percent(0.2543), "25.43 %");
        assert_eq!(percent(1.0), "100 %");
    }
}
