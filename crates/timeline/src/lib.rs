//! When a CPU may run: the timeslices of a schedule, and the off-times between them. Pure arithmetic.
//!
//! The simulation (crates/virtual) grants a kernel its [`TimeSlices`]; the burner (crates/contention) occupies a CPU in the
//! [`OffTimes`]. Both read the same [`Schedule`], so that its fields mean the same in virtual time and on a host.
mod any_of;
mod drawn;
mod host_schedulers;
mod late_wake_ups;
mod off_times;
mod on_wake_up;
mod schedule;
mod time_slice;
mod time_slices;

pub use off_times::{OffTime, OffTimes};
pub use schedule::{AnyOf, Late, Schedule, ScheduleError, Slices, Ticked, Woken};
pub use time_slice::{TimeSlice, NEVER};
pub use time_slices::TimeSlices;
