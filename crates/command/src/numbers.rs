//! Whole numbers and lengths of time that options take, and what is said of what is none of them.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use brobust_host::units;

/// Returns the parser of whole numbers from `min` on. Its error is a sentence for the user, as of the others here.
pub fn at_least<T>(min: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |text| parsed(text, |number| *number >= min).ok_or_else(|| format!("give a whole number, {min} or more"))
}

/// Returns the parser of whole numbers in this range.
pub fn within<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |text| {
        let refused = || format!("give a whole number from {} to {}", range.start(), range.end());
        parsed(text, |number| range.contains(number)).ok_or_else(refused)
    }
}

/// Reads for how long something is to be done.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = Duration::from_nanos(units::nanoseconds(text)?);
    let allowed = Some(duration).filter(|duration| *duration >= Duration::from_millis(100));
    allowed.ok_or_else(|| "this is too short to see anything; give at least 100ms".to_owned())
}

/// Reads the id of a process.
pub fn process_id(text: &str) -> Result<i32, &'static str> {
    parsed(text, |id| *id > 0).ok_or("no process id; give a number, such as `pidof PROGRAM` prints")
}

/// Returns what to say of digits that are a larger number than a port can be.
pub fn too_large_for_a_port(digits: &str) -> Option<String> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    (is_number && digits.parse::<u16>().is_err()).then(|| format!("port {digits} is above {}", u16::MAX))
}

fn parsed<T: FromStr>(text: &str, is_allowed: impl FnOnce(&T) -> bool) -> Option<T> {
    text.parse().ok().filter(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_refused_with_what_is_allowed() {
        assert_eq!((at_least(0_usize)("7"), within(-20..=19)("-20")), (Ok(7), Ok(-20)));
        for text in ["-1", "abc", "", "1.5", "99999999999999999999"] {
            assert_eq!(at_least(0_usize)(text), Err("give a whole number, 0 or more".to_owned()), "{text}");
        }
        assert_eq!(within(1..=64)("65"), Err("give a whole number from 1 to 64".to_owned()));
    }

    #[test]
    fn a_port_that_no_address_has_is_named() {
        for digits in ["99999", "65536", "999999999999999999999"] {
            assert_eq!(too_large_for_a_port(digits), Some(format!("port {digits} is above 65535")));
        }
        for other in ["65535", "0", "-1", "", "http"] {
            assert_eq!(too_large_for_a_port(other), None, "{other}");
        }
    }
}
