//! Runs the congestion controls of cc/controls without a kernel, for unit tests, replay of recorded calls and fuzzing,
//! and lists their parameters. This is the only place where Rust calls their C.

pub mod abi;
mod offered;
mod params;
pub mod replay;

use std::ffi::{c_void, CStr};

pub use abi::{Connection, Report, Sample};
pub use offered::Offered;
pub use params::{Param, ParamError};

include!(concat!(env!("OUT_DIR"), "/controls.rs"));

/// enum cc_ca_state: the state of the stack's loss recovery, icsk_ca_state.
pub mod ca_state {
    pub const OPEN: u8 = 0;
    pub const DISORDER: u8 = 1;
    pub const CWR: u8 = 2;
    pub const RECOVERY: u8 = 3;
    pub const LOSS: u8 = 4;
}

/// enum cc_event: the stack is about to send with nothing in flight.
pub const EVENT_TX_START: u32 = 0;

/// enum cc_event: a tail loss probe has repaired a loss.
pub const EVENT_TLP_RECOVERY: u32 = 6;

/// The names of enum cc_ca_state, by number.
pub const CA_STATES: [&str; 5] = ["open", "disorder", "cwr", "recovery", "loss"];

/// The names of enum cc_mode, by number.
pub const MODES: [&str; 10] = [
    "startup",
    "drain",
    "probe_bw",
    "probe_rtt",
    "probe_bw_up",
    "probe_bw_down",
    "probe_bw_cruise",
    "probe_bw_refill",
    "slow_start",
    "avoidance",
];

/// A congestion control of cc/controls.
#[derive(Clone, Copy)]
pub struct Control(*const abi::Operations);

// SAFETY: the table is constant, and so is what it points to, except the parameters, which only `set` writes.
unsafe impl Send for Control {}
// SAFETY: the same holds for shared references.
unsafe impl Sync for Control {}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Control").field(&self.name()).finish()
    }
}

impl Control {
    pub fn all() -> &'static [Control] {
        CONTROLS
    }

    pub fn find(name: &str) -> Option<Control> {
        CONTROLS.iter().copied().find(|control| control.name() == name)
    }

    pub fn name(self) -> &'static str {
        // SAFETY: cc/hosts/program/control.h sets it to a string constant.
        unsafe { CStr::from_ptr(self.operations().name) }.to_str().unwrap_or_default()
    }

    /// Whether the control decides the window only, and leaves rate and recovery to the stack (Reno, CUBIC).
    pub fn is_window_based(self) -> bool {
        self.operations().on_acked.is_some()
    }

    pub fn params(self) -> Vec<Param> {
        params::of(self.operations())
    }

    /// Sets the control's parameters for all its sockets in this process. Parameters that `settings` does not name get
    /// their defaults.
    ///
    /// # Safety
    /// No other thread may use the control during the call.
    pub unsafe fn set(self, settings: &[(&str, u32)]) {
        for (name, value, default) in params::variables(self.operations()) {
            let number = settings.iter().find(|(given, _)| *given == name).map_or(default, |(_, number)| *number);
            // SAFETY: this is the variable of a parameter in C's memory, which no other thread reads now.
            unsafe { value.write(number) };
        }
    }

    fn operations(self) -> &'static abi::Operations {
        // SAFETY: build.rs takes the address of a C constant.
        unsafe { &*self.0 }
    }
}

/// Methods that call the control's function of that name: where it has none, they do nothing.
macro_rules! optional {
    ($($(#[$about:meta])* $name:ident($($given:ident: $type:ty)?);)*) => {$(
        $(#[$about])*
        pub fn $name(&mut self, conn: &mut Connection $(, $given: $type)?) {
            if let Some(call) = self.control.operations().$name {
                // SAFETY: as in `init`.
                unsafe { call(conn, $($given,)? self.state()) };
            }
        }
    )*};
}

/// A socket that uses a control: the control's state, and its functions (cc/cc.h).
#[derive(Debug, Clone)]
pub struct Socket {
    control: Control,
    /// C's struct control, in eight-byte words so that it is aligned.
    state: Vec<u64>,
}

impl Socket {
    /// Calls control_init().
    pub fn new(control: Control, conn: &mut Connection) -> Socket {
        let mut socket = Socket::blank(control);
        socket.init(conn);
        socket
    }

    /// Makes a socket whose control has not been initialised.
    fn blank(control: Control) -> Socket {
        Socket { control, state: vec![0; control.operations().control_size.div_ceil(size_of::<u64>())] }
    }

    fn init(&mut self, conn: &mut Connection) {
        // SAFETY: the state is zeroed, and as large as the control says. The same holds for the calls below.
        unsafe { (self.control.operations().init)(conn, self.state()) };
    }

    optional! {
        /// Calls control_on_ack(). A window-based control does not have it.
        on_ack(sample: &Sample);
        /// Calls control_on_acked(). A control that decides the rate as well does not have it.
        on_acked(acked: u32);
        on_rtt(rtt_us: u32);
        /// Calls control_set_state() with a state of `ca_state`.
        set_state(state: u8);
        on_event(event: u32);
        on_send();
        on_lost(packet: &Sample);
    }

    /// Calls control_burst(), which returns packets of `mss` bytes; None if the control does not size its bursts.
    pub fn burst(&self, conn: &Connection, mss: u32) -> Option<u32> {
        // SAFETY: as in `init`; the function only reads the state.
        self.control.operations().burst.map(|burst| unsafe { burst(conn, mss, self.state.as_ptr().cast()) })
    }

    /// Calls control_ssthresh(), which returns packets.
    pub fn ssthresh(&mut self, conn: &mut Connection) -> u32 {
        // SAFETY: as in `init`.
        unsafe { (self.control.operations().ssthresh)(conn, self.state()) }
    }

    /// Calls control_undo_cwnd(), which returns packets.
    pub fn undo_cwnd(&mut self, conn: &mut Connection) -> u32 {
        // SAFETY: as in `init`.
        unsafe { (self.control.operations().undo_cwnd)(conn, self.state()) }
    }

    pub fn report(&self, conn: &Connection) -> Report {
        let mut report = Report::default();
        self.add_to_report(conn, &mut report);
        report
    }

    /// Calls control_report(), which leaves fields alone that the control does not know.
    fn add_to_report(&self, conn: &Connection, report: &mut Report) {
        // SAFETY: as in `init`; the function only reads the state.
        unsafe { (self.control.operations().report)(conn, self.state.as_ptr().cast(), report) };
    }

    fn state(&mut self) -> *mut c_void {
        self.state.as_mut_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use brobust_layout::headers;

    use super::*;

    /// Returns the names of an enum in lower case and without the prefix, by number.
    fn names(of: &str, prefix: &str) -> Vec<String> {
        let known = headers::CC.enumerators(of);
        assert!(known.iter().zip(0..).all(|((_, number), place)| *number == place), "not from 0 on: {known:?}");
        let shorten = |name: &str| name.strip_prefix(prefix).expect(prefix).to_lowercase();
        known.iter().map(|(name, _)| shorten(name)).collect()
    }

    #[test]
    fn modes_and_states_have_the_names_and_numbers_of_c() {
        use ca_state::{CWR, DISORDER, LOSS, OPEN, RECOVERY};
        assert_eq!(names("cc_mode", "CC_MODE_"), MODES);
        assert_eq!(names("cc_ca_state", "CC_CA_"), CA_STATES);
        let states = [OPEN, DISORDER, CWR, RECOVERY, LOSS].map(|number| CA_STATES[usize::from(number)]);
        assert_eq!(states, ["open", "disorder", "cwr", "recovery", "loss"]);
        assert_eq!(names("cc_event", "CC_EVENT_")[EVENT_TX_START as usize], "tx_start");
        assert_eq!(names("cc_event", "CC_EVENT_")[EVENT_TLP_RECOVERY as usize], "tlp_recovery");
    }

    #[test]
    fn every_control_has_a_name_that_the_kernel_takes() {
        assert!(Control::all().len() > 4);
        for control in Control::all() {
            assert!((1..=15).contains(&control.name().len()), "{control:?}");
            assert_eq!(Control::find(control.name()).unwrap().name(), control.name());
        }
    }

    #[test]
    fn reno_doubles_in_slow_start_and_halves_on_loss() {
        let mut conn =
            Connection { cwnd: 10, cwnd_clamp: u32::MAX, ssthresh: 100, is_cwnd_limited: 1, ..Default::default() };
        let mut reno = Socket::new(Control::find("brb_reno").unwrap(), &mut conn);
        reno.on_acked(&mut conn, 10);
        assert_eq!(conn.cwnd, 20);
        assert_eq!(reno.ssthresh(&mut conn), 10);
    }
}
