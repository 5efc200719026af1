//! The controls that users can choose: those of cc/controls, and those that combine the kernel's own BBR or CUBIC with
//! code from cc/controls.

use crate::params::{self, Param, ParamError};
use crate::Control;

/// A congestion control of ours.
#[derive(Debug, Clone, Copy)]
pub struct Offered {
    pub name: &'static str,
    /// The kernel's control that this one wraps; it needs only BPF where there is none.
    pub wraps: Option<&'static str>,
    /// The control of cc/controls whose parameters it takes.
    parameters_of: Control,
    /// The beginning of the parameters that apply.
    prefix: &'static str,
}

/// Name, the kernel's control that it wraps, the control of cc/controls whose parameters it takes, and the beginning of
/// those that apply.
const WRAPPING: [(&str, &str, &str, &str); 4] = [
    ("bbr_robust", "bbr", "brb_bbr1_robust", "robust_"),
    ("bbr_steady", "bbr", "brb_bbr1_steady", "steady_"),
    ("bbr_shadow", "bbr", "brb_bbr1", ""),
    ("cubic_shadow", "cubic", "brb_cubic", ""),
];

impl Offered {
    /// Returns all controls of ours, those that wrap one of the kernel's first.
    pub fn all() -> impl Iterator<Item = Offered> {
        let wrapping = WRAPPING.iter().filter_map(|&(name, wraps, host, prefix)| {
            Some(Offered { name, wraps: Some(wraps), parameters_of: Control::find(host)?, prefix })
        });
        let own =
            |&control: &Control| Offered { name: control.name(), wraps: None, parameters_of: control, prefix: "" };
        wrapping.chain(Control::all().iter().map(own))
    }

    /// Finds the control whose parameters a user wants to see or to set.
    pub fn find(name: &str) -> Result<Offered, ParamError> {
        Self::all().find(|offered| offered.name == name).ok_or_else(|| {
            let ours: Vec<&str> = Self::all().map(|offered| offered.name).collect();
            ParamError(format!(
                "{name} is no control of ours, and others take no parameters; ours are {}",
                ours.join(", ")
            ))
        })
    }

    pub fn params(&self) -> Vec<Param> {
        let mut params = self.parameters_of.params();
        params.retain(|param| param.name.starts_with(self.prefix));
        params
    }

    /// Converts names and values as people write them to names and numbers for the C.
    pub fn settings(&self, given: &[(String, String)]) -> Result<Vec<(&'static str, u32)>, ParamError> {
        let params = self.params();
        let mut settings: Vec<(&'static str, u32)> = Vec::new();
        for (name, text) in given {
            let param = params::find(self.name, &params, name)?;
            if settings.iter().any(|(known, _)| *known == param.name) {
                return Err(ParamError(format!("{} is given twice; give it once", param.name)));
            }
            settings.push((param.name, param.parse(text)?));
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::{Offered, WRAPPING};

    #[test]
    fn the_tables_name_controls_that_exist() {
        let names: Vec<&str> = Offered::all().map(|offered| offered.name).collect();
        for name in WRAPPING.iter().map(|row| row.0) {
            assert!(names.contains(&name), "{name} is not one of {names:?}");
        }
    }

    #[test]
    fn a_wrapping_control_takes_the_parameters_of_its_own_code() {
        let robust = Offered::find("bbr_robust").expect("it is ours");
        assert!(robust.params().iter().all(|param| param.name.starts_with("robust_")) && !robust.params().is_empty());
        let refused = robust.settings(&[("bbr1_high_gain".into(), "2".into())]).unwrap_err().to_string();
        assert!(refused.starts_with("bbr_robust has no parameter bbr1_high_gain; it has robust_gain"), "{refused}");
        let steady = Offered::find("bbr_steady").expect("it is ours");
        let refused = steady.settings(&[("growth".into(), "2%".into())]).unwrap_err().to_string();
        assert!(refused.starts_with("steady_growth: "), "{refused}");
        let unknown = Offered::find("cubic").unwrap_err().to_string();
        let said = "cubic is no control of ours, and others take no parameters; ours are bbr_robust";
        assert!(unknown.contains(said) && unknown.contains("brb_cubic"));
    }
}
