//! /proc/TID/stat (proc(5)), which exists for every thread, not only for the first of a process.

use crate::read_proc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// `R`: the thread wants a CPU or has one; any other letter: it sleeps, is stopped or is dead.
    pub state: char,
    /// Process id of the parent.
    pub parent: i32,
    /// User and system time in clock ticks (10 ms).
    pub cpu_ticks: u64,
    /// Start of the thread, in clock ticks since boot.
    pub started: u64,
}

impl Stat {
    /// Returns that of a thread; None if there is no such thread (any more).
    pub fn read(tid: i32) -> Option<Self> {
        Self::parse(&read_proc(format!("/proc/{tid}/stat")).ok()?)
    }

    /// Returns that of a thread which has not ended, as a zombie has, or one that is dead.
    pub fn of_living(tid: i32) -> Option<Self> {
        Self::read(tid).filter(|stat| !matches!(stat.state, 'Z' | 'X'))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        // The second field is the name in parentheses and may itself hold spaces and parentheses.
        let (_, after_name) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        // proc(5) counts fields from 1; `fields` starts with field 3.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: number(4)?.try_into().ok()?,
            cpu_ticks: number(14)? + number(15)?,
            started: number(22)?,
        })
    }

    /// Returns whether it is a thread of the kernel's: a child of kthreadd, which is process 2.
    pub fn is_kernels(&self) -> bool {
        self.parent == 2
    }
}

#[cfg(test)]
mod tests {
    use super::Stat;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text = "71 (CPU 0/KVM) x) S 1 71 71 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 3 0 9876 1 2";
        assert_eq!(Stat::parse(text), Some(Stat { state: 'S', cpu_ticks: 175, started: 9876, parent: 1 }));
    }
}
