//! Loads controls into the running kernel: `-- --ignored`, as root. It is one test, since there is one kernel.

use brobust_ccload::{self as ccload, load, pin_path, unload, Refusal, Settings, StateMaps};
use brobust_sockdiag::{Filter, SockDiag};

mod common;
use common::transfer;

const NAME: &str = "bbr_robust";

fn loaded() -> bool {
    ccload::loaded().iter().any(|name| name == NAME)
}

/// Sends data with the control, and returns the number of acknowledgements that the control reports.
fn acks_of_a_transfer(state_maps: &mut StateMaps) -> u64 {
    let (client, _server) = transfer(NAME);
    let mut diag = SockDiag::open().unwrap().with_state_maps(state_maps.open());
    let remote_port = Some(client.peer_addr().unwrap().port());
    let sockets = diag.dump(&Filter { remote_port, ..Filter::default() }).unwrap();
    assert_eq!(sockets[0].congestion_control.as_deref(), Some(NAME));
    let model = sockets[0].bbr.as_ref().expect("the control exports its model");
    assert!(model.bandwidth_bytes_per_s > 0 && model.min_rtt_us.is_some(), "{model:?}");
    assert!(model.mode.is_some_and(|mode| mode <= 3) && model.deficit_acks <= model.acks, "{model:?}");
    model.acks.unwrap()
}

#[test]
#[ignore = "needs root"]
fn a_control_is_loaded_used_and_removed_without_a_trace() {
    let mut state_maps = StateMaps::default();
    drop(state_maps.open()); // it remembers those of others
    let Some(_unloaded) = common::loaded(NAME, &Settings::default()) else { return };
    let pin = pin_path(NAME);
    assert!(loaded() && pin.exists());
    assert!(matches!(load(NAME, &Settings::default()), Err(Refusal::NameTaken { .. })));
    assert!(acks_of_a_transfer(&mut state_maps) > 0);
    assert!(!state_maps.open().is_empty(), "it is found again");
    unload(NAME).unwrap();
    assert!(!loaded() && !pin.exists());
    assert!(matches!(unload(NAME), Err(Refusal::NotLoaded { .. })));

    // A lost pin must not leave the control behind.
    load(NAME, &Settings::default()).unwrap();
    std::fs::remove_file(&pin).unwrap();
    unload(NAME).unwrap();
    assert!(!loaded());

    assert!(matches!(unload("cubic"), Err(Refusal::Unknown { .. })));
}
