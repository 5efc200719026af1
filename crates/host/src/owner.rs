//! Identifies the process that owns a record on the host, by more than its id.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};

use crate::{eventually, Refusal, Result, Stat};

/// The start of a process that does not exist.
const NEVER: u64 = u64::MAX;

/// A process id, and when that process started, in clock ticks since boot. The pair identifies a process until the host
/// reboots; an id alone may be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    pub pid: i32,
    pub(crate) started: u64,
}

impl Owner {
    pub fn current() -> Self {
        Self::of(std::process::id() as i32)
    }

    /// Returns the process that has this id now. If there is none, the owner does not live.
    pub fn of(pid: i32) -> Self {
        Self { pid, started: start_time(pid).unwrap_or(NEVER) }
    }

    /// Returns whether this process is running, and not just a later one with the same id.
    pub fn lives(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Kills this process, but no later one with the same id, and waits up to 5 s until it has ended.
    pub fn kill(&self) -> Result<()> {
        let limit = Duration::from_secs(5);
        if let Some(descriptor) = Pid::from_raw(self.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
            // If it lives now, the descriptor belongs to it, not to a later process with its id.
            if self.lives() && pidfd_send_signal(&descriptor, Signal::KILL) == Err(Errno::PERM) {
                let text = format!("this user may not kill process {}; run this as root", self.pid);
                return Err(Refusal::missing_support(text));
            }
        }
        if eventually(limit, || !self.lives()) {
            return Ok(());
        }
        let (pid, waited) = (self.pid, limit.as_secs());
        let text =
            format!("process {pid} was killed but still exists after {waited} s, perhaps since it waits for a disk");
        Err(Refusal::missing_support(text))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.pid, self.started)
    }
}

impl FromStr for Owner {
    type Err = ();

    /// Reads what `Display` has written.
    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let (pid, started) = text.split_once('-').filter(|(pid, started)| number(pid) && number(started)).ok_or(())?;
        Ok(Self { pid: pid.parse().map_err(drop)?, started: started.parse().map_err(drop)? })
    }
}

/// Returns when a living process or thread started, in clock ticks since boot.
pub(crate) fn start_time(tid: i32) -> Option<u64> {
    Stat::of_living(tid).map(|stat| stat.started)
}

#[cfg(test)]
mod tests {
    use super::Owner;
    use std::process::Command;

    #[test]
    fn a_process_is_known_by_its_text() {
        let owner = Owner::current();
        assert!(owner.lives());
        assert_eq!(owner.to_string().parse(), Ok(owner));
        assert!("12".parse::<Owner>().is_err() && "12-+3".parse::<Owner>().is_err() && "-".parse::<Owner>().is_err());
    }

    #[test]
    fn kills_its_process_and_no_later_one() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let owner = Owner::of(child.id() as i32);
        let later = Owner { started: owner.started + 1, ..owner };
        later.kill().expect("a process that is gone needs nothing");
        assert!(owner.lives());
        owner.kill().expect("our own child may be killed");
        assert!(!owner.lives());
        child.wait().expect("it has ended");
    }
}
