//! The names of pods and containers, from the directories in which a kubelet keeps their logs. So no API is asked, and
//! no privilege is needed beyond reading /var/log.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brobust_host::names;

use super::container::{is_hex, Container};

/// Directories named NAMESPACE_POD_UID.
const PODS: &str = "var/log/pods";
/// Links named POD_NAMESPACE_CONTAINER-ID.log.
const CONTAINERS: &str = "var/log/containers";
/// The directories are read again after this time, if a name is missing.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Kubelet {
    root: PathBuf,
    read: Option<Instant>,
    /// Namespace and pod by UID.
    pods: HashMap<String, (String, String)>,
    /// Names of containers by id.
    containers: HashMap<String, String>,
}

impl Kubelet {
    /// `root`: where the host's root directory is.
    pub fn new(root: &Path) -> Kubelet {
        Kubelet { root: root.to_owned(), read: None, pods: HashMap::new(), containers: HashMap::new() }
    }

    /// Reads the directories again if the container's names are missing and they have not been read just now.
    pub fn look_for(&mut self, container: &Container) {
        let is_known = self.pod(container).is_some() && (container.id.is_none() || self.container(container).is_some());
        if container.pod_uid.is_none() || is_known || self.read.is_some_and(|then| then.elapsed() < PATIENCE) {
            return;
        }
        self.read = Some(Instant::now());
        self.pods = names(self.root.join(PODS)).filter_map(|name| read_pod(&name)).collect();
        self.containers = names(self.root.join(CONTAINERS)).filter_map(|name| read_container(&name)).collect();
    }

    /// Returns namespace and name of the container's pod.
    pub fn pod(&self, container: &Container) -> Option<&(String, String)> {
        self.pods.get(container.pod_uid.as_ref()?)
    }

    pub fn container(&self, container: &Container) -> Option<&String> {
        self.containers.get(container.id.as_ref()?)
    }
}

/// Reads NAMESPACE_POD_UID; no name in Kubernetes has an underscore.
fn read_pod(name: &str) -> Option<(String, (String, String))> {
    let mut parts = name.split('_');
    let (namespace, pod, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && !namespace.is_empty() && !pod.is_empty() && !uid.is_empty();
    is_whole.then(|| (uid.to_owned(), (namespace.to_owned(), pod.to_owned())))
}

/// Reads POD_NAMESPACE_CONTAINER-ID.log.
fn read_container(name: &str) -> Option<(String, String)> {
    let last = name.strip_suffix(".log")?.split('_').nth(2)?;
    let (container, id) = last.rsplit_once('-')?;
    (is_hex(id) && !container.is_empty()).then(|| (id.to_owned(), container.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_a_kubelet_writes_them() {
        let uid = "2f1b5c3e-8d4a-4f6b-9c0e-1a2b3c4d5e6f";
        let pod = read_pod(&format!("kube-system_coredns-7db6d8ff4d-abcde_{uid}")).unwrap();
        assert_eq!(pod, (uid.to_owned(), ("kube-system".to_owned(), "coredns-7db6d8ff4d-abcde".to_owned())));
        let id = "4e5b".repeat(16);
        let container = read_container(&format!("coredns-7db6d8ff4d-abcde_kube-system_side-car-{id}.log"));
        assert_eq!(container, Some((id, "side-car".to_owned())));
        for other in ["", "a_b", "a_b_", "a_b_c_d", "lost+found", "_b_c"] {
            assert_eq!(read_pod(other), None, "{other}");
        }
        for other in ["", ".log", "a_b_c.log", "a_b_c-xyz.log", "a_b_c-12", "a_b-12.log"] {
            assert_eq!(read_container(other), None, "{other}");
        }
    }
}
