//! The parameters of a control: their names, units and ranges, and their values as people write them.

use std::ffi::{c_char, CStr};

use crate::abi;

/// What is wrong with a parameter: one sentence that says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParamError(pub String);

/// The unit in which people write a parameter.
#[derive(Debug)]
struct Unit {
    /// The suffixes that may follow the number, each with the number that the C keeps for 1 of it; none where people
    /// write `on` or `off`.
    suffixes: &'static [(&'static str, f64)],
    /// With how many of these suffixes values are shown.
    shown: usize,
    /// Whether a value is rounded to what the C can keep, as binary fractions are. Other values have to be kept
    /// exactly.
    rounds: bool,
}

impl Unit {
    /// Returns the unit of that name in cc/cc.h.
    fn of_c(name: &str) -> Unit {
        let (suffixes, shown): (&[_], _) = match name {
            "CC_GAIN" => (&[("", 256.0)], 1),
            "CC_PER_1024" => (&[("", 1024.0)], 1),
            "CC_PERCENT" => (&[("%", 1.0)], 1),
            "CC_PERMILLE" => (&[("%", 10.0)], 1),
            "CC_MICROSECONDS" => (&[("us", 1.0), ("ms", 1e3), ("s", 1e6)], 2),
            "CC_MILLISECONDS" => (&[("ms", 1.0), ("us", 1e-3), ("s", 1e3)], 1),
            "CC_SECONDS" => (&[("s", 1.0), ("us", 1e-6), ("ms", 1e-3)], 1),
            "CC_BITS_PER_SECOND" => (&[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)], 3),
            "CC_PACKETS" | "CC_ROUNDS" | "CC_TIMES" => (&[("", 1.0)], 1),
            "CC_SWITCH" => (&[], 0),
            other => panic!("cc/cc.h does not know the unit {other}"),
        };
        Unit { suffixes, shown, rounds: matches!(name, "CC_GAIN" | "CC_PER_1024") }
    }
}

/// One parameter of a control, in the numbers that the C keeps.
#[derive(Debug)]
pub struct Param {
    pub name: &'static str,
    unit: Unit,
    pub help: &'static str,
    pub default: u32,
    pub min: u32,
    pub max: u32,
}

impl Param {
    /// Reads a value such as `2.887`, `3ms`, `0.5%`, `1.2mbit`, `48` or `on`, according to the parameter's unit.
    pub fn parse(&self, text: &str) -> Result<u32, ParamError> {
        let allowed = self.number(text.trim()).filter(|value| (self.min..=self.max).contains(value));
        allowed.ok_or_else(|| self.refuse(text))
    }

    /// Writes a value as `parse` reads it, with the largest suffix that leaves at least 1 of it.
    pub fn show(&self, value: u32) -> String {
        let number = f64::from(value);
        let shown = &self.unit.suffixes[..self.unit.shown];
        match shown.iter().rfind(|(_, scale)| *scale <= number).or(shown.first()) {
            Some((suffix, scale)) => {
                let digits = format!("{:.3}", number / scale);
                format!("{}{suffix}", digits.trim_end_matches('0').trim_end_matches('.'))
            }
            None => if value == 0 { "off" } else { "on" }.to_owned(),
        }
    }

    fn number(&self, text: &str) -> Option<u32> {
        let text = text.to_ascii_lowercase();
        if self.unit.suffixes.is_empty() {
            return match text.as_str() {
                "on" | "1" | "true" | "yes" => Some(1),
                "off" | "0" | "false" | "no" => Some(0),
                _ => None,
            };
        }
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits);
        let number: f64 = number.parse().ok()?;
        let suffix = suffix.trim();
        // Zero needs no unit.
        let scale = match self.unit.suffixes.iter().find(|(known, _)| *known == suffix) {
            Some((_, scale)) => *scale,
            None if number == 0.0 && suffix.is_empty() => 1.0,
            None => return None,
        };
        let scaled = number * scale;
        let nearest = scaled.round();
        let kept = self.unit.rounds || (scaled - nearest).abs() < 1e-6;
        (kept && (0.0..=f64::from(u32::MAX)).contains(&nearest)).then_some(nearest as u32)
    }

    fn refuse(&self, given: &str) -> ParamError {
        ParamError(format!(
            "{}: {given:?} is not allowed: give {} to {}, such as {}",
            self.name,
            self.show(self.min),
            self.show(self.max),
            self.show(self.default)
        ))
    }
}

/// Finds the parameter of that name, or the only one whose name ends in `_NAME`. If several do, it is the one with a
/// single word before it: `rate` is `master_rate` rather than `bbr_min_tso_rate`.
pub fn find<'a>(control: &str, params: &'a [Param], name: &str) -> Result<&'a Param, ParamError> {
    if let Some(param) = params.iter().find(|param| param.name == name) {
        return Ok(param);
    }
    let ending = format!("_{name}");
    let mut found: Vec<&Param> = params.iter().filter(|param| param.name.ends_with(&ending)).collect();
    let is_whole = |param: &&Param| !param.name[..param.name.len() - ending.len()].contains('_');
    if found.iter().filter(|param| is_whole(param)).count() == 1 {
        found.retain(is_whole);
    }
    let names = |params: &[&Param]| params.iter().map(|param| param.name).collect::<Vec<_>>().join(", ");
    match found.as_slice() {
        [param] => Ok(*param),
        [] if params.is_empty() => Err(ParamError(format!("{control} has no parameters, and so no {name}"))),
        [] => Err(ParamError(format!(
            "{control} has no parameter {name}; it has {}",
            names(&params.iter().collect::<Vec<_>>())
        ))),
        several => Err(ParamError(format!("{name} of {control} could be {}; give one of these", names(several)))),
    }
}

fn named(operations: &abi::Operations) -> impl Iterator<Item = &abi::Param> {
    // SAFETY: the linker's bounds of an array of struct cc_param.
    let all = unsafe {
        let length = operations.params_end.offset_from(operations.params);
        std::slice::from_raw_parts(operations.params, usize::try_from(length).unwrap_or(0))
    };
    all.iter().filter(|param| !param.name.is_null())
}

/// Returns each parameter's name, its variable in C, and its default.
pub fn variables(operations: &abi::Operations) -> impl Iterator<Item = (&'static str, *mut u32, u32)> + '_ {
    named(operations).map(|param| (text(param.name), param.value, param.standard))
}

pub fn of(operations: &abi::Operations) -> Vec<Param> {
    let mut found: Vec<Param> = named(operations)
        .map(|param| Param {
            name: text(param.name),
            unit: Unit::of_c(text(param.unit)),
            help: text(param.help),
            default: param.standard,
            min: param.least,
            max: param.most,
        })
        .collect();
    found.sort_by_key(|param| param.name);
    found
}

fn text(pointer: *const c_char) -> &'static str {
    // SAFETY: CC_PARAM of the host for programs makes them from string constants.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::{Control, Offered};

    #[test]
    fn a_control_has_its_own_parameters_and_no_others() {
        let names = |control: &str| -> Vec<&str> {
            Control::find(control).unwrap().params().iter().map(|param| param.name).collect()
        };
        assert!(names("brb_bbr1").contains(&"bbr1_high_gain") && !names("brb_bbr1").contains(&"robust_gain"));
        assert!(names("brb_bbr1_robust").contains(&"robust_gain"));
        assert!(names("brb_reno").is_empty());
    }

    #[test]
    fn values_are_read_in_the_units_of_people() {
        let read = |control: &str, name: &str, text: &str| {
            find(control, &Control::find(control).unwrap().params(), name).unwrap().parse(text)
        };
        assert_eq!(read("brb_bbr1", "bbr1_high_gain", "2.887"), Ok(739));
        assert_eq!(read("brb_bbq", "alpha", "3ms"), Ok(3000));
        assert_eq!(read("brb_bbq", "alpha", "250us"), Ok(250));
        assert_eq!(read("brb_bbq", "beta", "0.5%"), Ok(5));
        assert_eq!(read("brb_bbq", "drain_to_bdp", "On"), Ok(1));
        assert_eq!(read("brb_bbr1", "bbr_min_tso_rate", "1.2mbit"), Ok(1_200_000));
        assert_eq!(read("brb_bbr1", "bbr1_min_rtt_window", "10s"), Ok(10));
        assert_eq!(read("brb_bbr1", "bbr1_probe_rtt", "0"), Ok(0));
        for (name, text) in [
            ("bbr1_min_rtt_window", "1500ms"), // only whole seconds can be kept
            ("bbr1_min_cwnd", "3ms"),
            ("bbr1_high_gain", "-1"),
            ("bbr1_high_gain", "4.5"), // ten bits
            ("bbr1_policer_detection", "maybe"),
            ("bbr1_bw_window", "1e3"),
            ("bbr1_bw_window", ""),
        ] {
            let refused = read("brb_bbr1", name, text).unwrap_err().to_string();
            assert!(refused.starts_with(name) && refused.contains("give "), "{refused}");
        }
    }

    #[test]
    fn what_is_shown_is_read_again() {
        for control in Control::all() {
            for param in control.params() {
                assert!(!param.help.is_empty(), "{param:?}");
                for value in [param.min, param.default, param.max] {
                    assert_eq!(param.parse(&param.show(value)), Ok(value), "{param:?}");
                }
            }
        }
    }

    #[test]
    fn settings_are_refused_that_are_unknown_ambiguous_or_given_twice() {
        let set = |control: &str, given: &[(&str, &str)]| {
            let given: Vec<(String, String)> = given.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
            Offered::find(control).unwrap().settings(&given).map_err(|error| error.to_string())
        };
        assert_eq!(
            set("brb_bbq", &[("alpha", "5ms"), ("bbq_beta", "1%")]),
            Ok(vec![("bbq_alpha", 5000), ("bbq_beta", 10)])
        );
        assert!(set("brb_bbr1", &[("alpha", "5ms")]).unwrap_err().contains("bbr1_high_gain"));
        assert_eq!(set("brb_bbr1_master", &[("cwnd", "70")]), Ok(vec![("master_cwnd", 70)]));
        assert!(set("brb_bbr1", &[("gain", "2")]).unwrap_err().contains("could be"));
        assert!(set("brb_bbq", &[("alpha", "5ms"), ("bbq_alpha", "6ms")]).unwrap_err().contains("twice"));
        assert!(set("brb_reno", &[("alpha", "5ms")]).unwrap_err().contains("no parameters"));
    }
}
