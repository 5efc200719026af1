//! The network namespaces whose sockets are read, and a reader in each.

use std::fmt;

use brobust_host::namespaces::{every, what_helps, Found, Name, Namespace, NotEntered};
use brobust_host::{reason, units, without_numbers};
use nix::unistd::geteuid;

use crate::reader::Reader;

/// The network namespaces to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// The namespace that this process is in.
    Own,
    /// The one that a user means: its name of ip-netns(8), the id of a process in it, or its path.
    Of(String),
    /// Those of all processes, all named ones, and those that are mounted elsewhere, as container engines do.
    All,
}

impl Namespaces {
    /// Returns the namespaces that exist now, and what to say of each that could not be found. That a process ends in
    /// between, and its namespace with it, is no error.
    pub fn find(&self) -> (Vec<Namespace>, Vec<String>) {
        let one = match self {
            Namespaces::Own => {
                Namespace::own().map_err(|error| format!("our own network namespace: {}", reason(&error)))
            }
            Namespaces::Of(given) => Namespace::find(given).map_err(|refusal| refusal.text),
            Namespaces::All => {
                let Found { namespaces, hidden } = every();
                let why = format!("are hidden from us: seeing them takes CAP_SYS_PTRACE{}", what_helps(geteuid()));
                let processes = units::show_count(hidden, "process", "processes");
                let unseen = (hidden > 0).then(|| format!("the network namespaces of {processes} {why}"));
                return (namespaces, unseen.into_iter().collect());
            }
        };
        match one {
            Ok(namespace) => (vec![namespace], vec![]),
            Err(error) => (vec![], vec![error]),
        }
    }
}

/// Returns the namespace's name in reports: nothing for our own.
pub fn label(namespace: &Namespace) -> String {
    match &namespace.name {
        Name::Own => String::new(),
        Name::Process(pid) => format!("pid {pid}"),
        other => other.to_string(),
    }
}

/// Says what is wrong with the namespace of this name.
pub fn of(name: &str, error: &impl fmt::Display) -> String {
    format!("network namespace {name}: {}", without_numbers(&error.to_string()))
}

/// Opens a reader in the namespace. None: the namespace has gone since it was found. The error says what is wrong.
pub fn open(namespace: &Namespace) -> Result<Option<Reader>, String> {
    match namespace.inside(Reader::open) {
        Ok(opened) => opened.map(Some).map_err(|error| without_numbers(&error.to_string())),
        Err(NotEntered::Gone) => Ok(None),
        Err(outside) => Err(of(&label(namespace), &outside)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_the_system_says_of_a_namespace_has_no_number_of_rusts() {
        let error = brobust_sockdiag::Error::Refused(std::io::Error::from_raw_os_error(1));
        let said = "network namespace web: the kernel refused the request for TCP sockets: Operation not permitted";
        assert_eq!(of("web", &error), said);
    }

    #[test]
    #[ignore = "needs root"]
    fn a_namespace_that_has_gone_since_it_was_found_is_no_error() {
        let mut made = Command::new("unshare");
        let mut process = made
            .args(["--net", "sh", "-c", "echo begun; read end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        process.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        let found = Namespace::find(&process.id().to_string()).unwrap();
        process.kill().and_then(|()| process.wait()).unwrap();
        assert!(open(&found).unwrap().is_none());
    }
}
