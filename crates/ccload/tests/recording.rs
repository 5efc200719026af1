//! Makes the calls again that our controls got in the running kernel, with the same C compiled for this machine: `--
//! --ignored`, as root.

use brobust_cc::replay::{Record, Replay};
use brobust_cc::Control;
use brobust_ccload::{load, programs, recorded_calls, Refusal, Settings};

mod common;
use common::{loaded, transfer};

#[test]
#[ignore = "needs root"]
fn recorded_calls_decide_the_same_when_they_are_made_again() {
    for name in ["brb_bbr1_robust", "brb_cubic"] {
        let settings = Settings { records_calls: true, ..Settings::default() };
        let Some(_unloaded) = loaded(name, &settings) else { continue };
        drop(transfer(name));
        let mut replay = Replay::new(Control::find(name).unwrap());
        recorded_calls(name, |bytes| replay.feed(&Record::read(bytes).unwrap())).unwrap();
        let outcome = replay.outcome();
        assert!(outcome.acks > 10, "{outcome:?}");
        assert_eq!((outcome.differences, outcome.lost), (0, 0), "{outcome:?}");

        let programs = programs(name).unwrap();
        assert!(programs.iter().any(|program| program.callback == "ssthresh"), "{programs:?}");
        assert!(programs.iter().all(|program| program.verified_instructions > 0), "{programs:?}");
    }
}

#[test]
fn what_cannot_record_refuses_to() {
    let settings = Settings { records_calls: true, ..Settings::default() };
    let refusal = load("bbr_robust", &settings).unwrap_err();
    assert!(matches!(refusal, Refusal::NoRecording { .. }), "{refusal}");
}
