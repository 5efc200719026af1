//! Whatever is given as a scenario is read and checked, or refused with a sentence of one line.
#![no_main]
use brobust_virtual::Scenario;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(scenario) = serde_json::from_slice::<Scenario>(bytes) else {
        return;
    };
    if let Err(why) = scenario.check() {
        assert!(!why.is_empty() && !why.contains('\n'), "{why:?}");
    }
});
