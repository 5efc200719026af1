//! The default congestion control of a network namespace, which its new sockets get, and the sockets that use one.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use brobust_host::namespaces::{self, Name, Namespace, NotEntered};
use brobust_host::{as_root, reason, Refusal, Result};
use brobust_sockdiag::{Filter, SockDiag};

const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

pub fn of(namespace: &Namespace) -> Result<String> {
    inside(namespace, || fs::read_to_string(DEFAULT)).map(|text| text.trim().to_owned())
}

pub fn set(namespace: &Namespace, control: &str) -> Result<()> {
    inside(namespace, || fs::write(DEFAULT, control))
}

/// Makes the first of these controls that the kernel takes the default of a namespace. Does nothing if the namespace
/// no longer exists.
pub fn set_first(namespace: &Namespace, controls: &[&str]) -> Result<()> {
    match namespace.inside(|| controls.iter().any(|control| fs::write(DEFAULT, control).is_ok())) {
        Ok(true) | Err(NotEntered::Gone) => Ok(()),
        Ok(false) => {
            let refused = controls.join(", ");
            let text = format!("the default of {} cannot be restored: the kernel refuses {refused}", namespace.name);
            Err(Refusal::missing_support(text))
        }
        Err(outside) => Err(not_entered(namespace, &outside)),
    }
}

pub struct Having {
    pub namespaces: Vec<Namespace>,
    /// Whether this user may look into all namespaces.
    pub is_complete: bool,
}

/// Returns the namespaces whose default is this control, as far as we may look into them.
pub fn having(control: &str) -> Having {
    let found = namespaces::every();
    let mut having = Having { namespaces: found.namespaces, is_complete: found.hidden == 0 };
    having.namespaces.retain(|namespace| match namespace.inside(|| fs::read_to_string(DEFAULT)) {
        Ok(default) => default.is_ok_and(|default| default.trim() == control),
        Err(outside) => {
            having.is_complete &= matches!(outside, NotEntered::Gone);
            false
        }
    });
    having
}

/// Returns the number of sockets of a namespace by control; none if we may not look into it. One that listens has a control,
/// too, which the connections that it accepts get if it was chosen for the socket.
pub fn sockets(namespace: &Namespace) -> BTreeMap<String, usize> {
    let dump = || SockDiag::open()?.dump(&Filter { listening: true, ..Filter::default() });
    let mut found = BTreeMap::new();
    let Ok(Ok(sockets)) = namespace.inside(dump) else { return found };
    for control in sockets.into_iter().filter_map(|socket| socket.congestion_control) {
        *found.entry(control).or_insert(0) += 1;
    }
    found
}

/// Reads or writes the default of a namespace.
fn inside<T: Send>(namespace: &Namespace, act: impl FnOnce() -> io::Result<T> + Send) -> Result<T> {
    let done = namespace.inside(act).map_err(|outside| not_entered(namespace, &outside))?;
    done.map_err(|error| {
        let why = reason(&error) + as_root(&error);
        Refusal::missing_support(format!("{}: {DEFAULT}: {why}", in_full(namespace)))
    })
}

fn not_entered(namespace: &Namespace, outside: &NotEntered) -> Refusal {
    Refusal::missing_support(format!("{}: {outside}", in_full(namespace)))
}

/// Returns what a sentence calls a namespace that it begins with.
fn in_full(namespace: &Namespace) -> String {
    match &namespace.name {
        own @ Name::Own => own.to_string(),
        name => format!("network namespace {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_named_where_root_may_do_what_is_refused() {
        let own = Namespace::own().expect("it is there");
        let refused = |number| inside(&own, || Err::<(), _>(io::Error::from_raw_os_error(number))).unwrap_err().text;
        let text = "this network namespace: /proc/sys/net/ipv4/tcp_congestion_control: operation not permitted; run this as root";
        assert_eq!(refused(libc::EPERM), text);
        assert!(refused(libc::ENOENT).ends_with(": no such file or directory"));
    }
}
