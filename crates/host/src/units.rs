//! Quantities with units, as people write them: `10ms`, `10m` (minutes), `1h`, `0.25`, `25%`. python/brobust/units.py
//! reads the same texts, except minutes and hours: a scenario has no use for them.

/// Timeslices are milliseconds, sweeps seconds, trials minutes and more.
const EXAMPLE: &str = "10ms, 5s or 1h";

/// Returns a duration such as `10ms`, in nanoseconds. The error is a sentence for the user.
pub fn nanoseconds(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text, "duration", EXAMPLE)?;
    let units = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        let what = if unit.is_empty() { "no unit".to_owned() } else { format!("the unknown unit '{unit}'") };
        return Err(format!("'{text}' has {what}; write for example {EXAMPLE} (ns, us, µs, ms, s, m, h)"));
    };
    let nanoseconds = (number * factor).round();
    if nanoseconds >= i64::MAX as f64 {
        return Err(format!("'{text}' is too large; write for example {EXAMPLE}"));
    }
    Ok(nanoseconds as u64)
}

/// Returns a share, `0.25` or `25%`, as a number in which 1 is the whole. The error is a sentence for the user.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text, "share", "0.25 or 25%")?;
    match unit.as_str() {
        "" => Ok(number),
        "%" => Ok(number / 100.0),
        _ => Err(format!("'{text}' has the unknown unit '{unit}'; write for example 0.25 or 25%")),
    }
}

/// Returns a number of things with their noun: 1 thread, 2 threads.
pub fn show_count(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn split(text: &str, what: &str, example: &str) -> Result<(f64, String), String> {
    let trimmed = text.trim();
    let end = trimmed.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((number, unit.trim().to_lowercase())),
        _ => Err(format!("'{text}' is not a {what}; write for example {example}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{nanoseconds, share};

    #[test]
    fn reads_what_people_write() {
        assert_eq!(nanoseconds("10ms"), Ok(10_000_000));
        assert_eq!(nanoseconds(" 1.5 S "), Ok(1_500_000_000));
        assert_eq!(nanoseconds("10m"), Ok(600_000_000_000));
        assert_eq!(nanoseconds("1h"), Ok(3_600_000_000_000));
        assert_eq!(share("25%"), Ok(0.25));
        assert_eq!(share(".5"), Ok(0.5));
    }

    #[test]
    fn says_what_is_wrong() {
        let said = nanoseconds("10").unwrap_err();
        assert_eq!(said, "'10' has no unit; write for example 10ms, 5s or 1h (ns, us, µs, ms, s, m, h)");
        assert!(nanoseconds("10 parsecs").unwrap_err().contains("unknown unit 'parsecs'"));
        assert!(nanoseconds("-1ms").unwrap_err().contains("is not a duration"));
        assert!(share("1..2").unwrap_err().contains("is not a share"));
    }
}
