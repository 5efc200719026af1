//! The processes of this host, as /proc shows them.

use std::fs;

use crate::{names, read_proc, Stat};

/// A process with its name (/proc/PID/comm, at most 15 bytes), the words of its command line, and its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    /// In clock ticks since boot, which tells it from a later one with its id.
    pub started: u64,
    pub parent: i32,
    pub name: String,
    pub command: Vec<String>,
}

/// Returns all processes, by id. One that ends meanwhile is left out.
pub fn all() -> Vec<Process> {
    let mut found: Vec<_> = names("/proc").filter_map(|name| of(name.parse().ok()?)).collect();
    found.sort_by_key(|process| process.pid);
    found
}

pub fn of(pid: i32) -> Option<Process> {
    let stat = read_proc(format!("/proc/{pid}/stat")).ok()?;
    let name = stat.rsplit_once(')')?.0.split_once('(')?.1.to_owned();
    let Stat { parent, started, .. } = Stat::parse(&stat)?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    Some(Process { pid, started, parent, name, command: words(&command) })
}

/// Each word ends with a null; one that a process has written itself, as nginx does, need not.
fn words(command: &[u8]) -> Vec<String> {
    let parts = command.strip_suffix(&[0]).unwrap_or(command).split(|byte| *byte == 0);
    let words = parts.map(|word| String::from_utf8_lossy(word).into_owned());
    words.filter(|_| !command.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn every_word_of_a_command_is_one() {
        assert_eq!(words(b"sh\0-c\0\0true\0"), ["sh", "-c", "", "true"]);
        assert_eq!(words(b"nginx: master process"), ["nginx: master process"]);
        assert!(words(b"").is_empty(), "a thread of the kernel has none");
    }

    #[test]
    fn this_process_is_one() {
        let own = super::of(std::process::id() as i32).expect("it lives");
        assert!(own.parent > 0 && !own.command.is_empty(), "{own:?}");
        assert!(super::all().contains(&own));
    }
}
