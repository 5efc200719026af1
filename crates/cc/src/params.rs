//! The parameters of a control: their names, units, ranges and values.

use std::ffi::{c_char, CStr};

use crate::abi;

/// In what people give a parameter (cc/cc.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Kept multiplied by 256.
    Gain,
    /// Kept multiplied by 1024.
    Per1024,
    Percent,
    Permille,
    Microseconds,
    Milliseconds,
    Seconds,
    BitsPerSecond,
    Packets,
    Rounds,
    Times,
    /// on or off
    Switch,
}

impl Unit {
    fn of_c(name: &str) -> Unit {
        match name {
            "CC_GAIN" => Unit::Gain,
            "CC_PER_1024" => Unit::Per1024,
            "CC_PERCENT" => Unit::Percent,
            "CC_PERMILLE" => Unit::Permille,
            "CC_MICROSECONDS" => Unit::Microseconds,
            "CC_MILLISECONDS" => Unit::Milliseconds,
            "CC_SECONDS" => Unit::Seconds,
            "CC_BITS_PER_SECOND" => Unit::BitsPerSecond,
            "CC_PACKETS" => Unit::Packets,
            "CC_ROUNDS" => Unit::Rounds,
            "CC_TIMES" => Unit::Times,
            "CC_SWITCH" => Unit::Switch,
            other => panic!("cc/cc.h does not know the unit {other}"),
        }
    }
}

/// One parameter of a control, in the numbers that the C keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    pub name: &'static str,
    pub unit: Unit,
    pub help: &'static str,
    pub standard: u32,
    pub least: u32,
    pub most: u32,
}

pub(crate) fn of(operations: &abi::Operations) -> Vec<Param> {
    // SAFETY: the linker's bounds of an array of struct cc_param.
    let all = unsafe {
        let length = operations.params_end.offset_from(operations.params);
        std::slice::from_raw_parts(operations.params, usize::try_from(length).unwrap_or(0))
    };
    let named = all.iter().filter(|param| !param.name.is_null());
    let mut found: Vec<Param> = named
        .map(|param| Param {
            name: text(param.name),
            unit: Unit::of_c(text(param.unit)),
            help: text(param.help),
            standard: param.standard,
            least: param.least,
            most: param.most,
        })
        .collect();
    found.sort_by_key(|param| param.name);
    found
}

fn text(pointer: *const c_char) -> &'static str {
    // SAFETY: host/cc_host.h makes them from string constants.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::Control;

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
    fn every_parameter_stands_within_its_range() {
        for control in Control::all() {
            for param in control.params() {
                assert!((param.least..=param.most).contains(&param.standard), "{control:?} {param:?}");
                assert!(!param.help.is_empty());
            }
        }
    }
}
