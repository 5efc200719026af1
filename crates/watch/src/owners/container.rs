//! Reads pods and containers out of the paths of their cgroups.
//!
//! A kubelet makes the cgroups down to the pod's, the container runtime those of the containers. With the cgroup driver
//! `systemd` they are named as systemd's slices and scopes, with `cgroupfs` plainly:
//!
//! ```text
//! /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid, _ for ->.slice/cri-containerd-<id>.scope
//! /kubepods/burstable/pod<uid>/<id>
//! ```
//!
//! The tests below have the other shapes that runtimes make.

/// Digits of a container's id. All runtimes of Kubernetes, and docker and podman, use as many.
const ID_DIGITS: usize = 64;
/// Digits of a short id, as `docker ps` and `crictl ps` show it.
pub const SHORT_ID_DIGITS: usize = 12;

/// What a cgroup's path says about its container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    /// The pod's UID: 36 letters, or 32 digits without dashes for a static pod.
    pub pod_uid: Option<String>,
    /// The container's whole id.
    pub id: Option<String>,
}

impl Container {
    /// Reads a path below the root of the cgroups. Of nested pods, as in a cluster within containers, the innermost
    /// counts; of nested containers within it, the outermost. Below user@N.service a user names cgroups, and could name one
    /// as somebody else's pod.
    pub fn of(path: &str) -> Container {
        let mut container = Container::default();
        let mut is_users = false;
        for name in path.split('/') {
            is_users |= name.starts_with("user@") && name.ends_with(".service");
            if let Some(uid) = pod_uid(name).filter(|_| !is_users) {
                container = Container { pod_uid: Some(uid), id: None };
            }
            if container.id.is_none() {
                container.id = container_id(name);
            }
        }
        container
    }
}

/// Returns the UID in the name of a pod's cgroup, such as `pod<uid>` or `kubepods-burstable-pod<uid>.slice`.
fn pod_uid(name: &str) -> Option<String> {
    // A runtime that uses cgroupfs below a kubelet that uses systemd writes slice:prefix:id into one name.
    let name = name.split(':').next()?;
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let (before, uid) = name.rsplit_once("pod")?;
    let uid = uid.replace('_', "-");
    let has_end = before.is_empty() || before.ends_with('-');
    (has_end && is_uid(&uid)).then_some(uid)
}

fn is_uid(text: &str) -> bool {
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    is_hex(&text.replace('-', "")) && (parts == [8, 4, 4, 4, 12] || parts == [32])
}

/// Returns the id in the name of a container's cgroup, such as `<id>`, `cri-containerd-<id>.scope` or `<slice>:<..>:<id>`.
fn container_id(name: &str) -> Option<String> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    // conmon watches over a container from outside.
    if name.contains("conmon") {
        return None;
    }
    let id = name.rsplit(['-', ':']).next()?;
    (id.len() == ID_DIGITS && is_hex(id)).then(|| id.to_owned())
}

pub fn is_hex(text: &str) -> bool {
    text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4e5b7c1f0a9d8e6b3c2f1a0d9e8b7c6f5a4d3e2b1c0f9a8d7e6b5c4f3a2d1e0b";
    const UID: &str = "2f1b5c3e-8d4a-4f6b-9c0e-1a2b3c4d5e6f";
    const STATIC: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";

    /// Reads a path in which UID, _UID, STATIC and ID stand for those above.
    fn read(path: &str) -> (Option<String>, bool) {
        let path = path.replace("_UID", &UID.replace('-', "_")).replace("UID", UID);
        let container = Container::of(&path.replace("STATIC", STATIC).replace("ID", ID));
        assert!(container.id.as_ref().is_none_or(|id| id == ID), "{path}");
        (container.pod_uid, container.id.is_some())
    }

    #[test]
    fn paths_of_pods_are_read_whatever_runtime_and_driver_made_them() {
        let burstable = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod_UID.slice";
        for path in [
            // containerd
            &format!("{burstable}/cri-containerd-ID.scope"),
            "/kubepods.slice/kubepods-pod_UID.slice/cri-containerd-ID.scope",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod_UID.slice/cri-containerd-ID.scope",
            "/kubepods/burstable/podUID/ID",
            "/kubepods/besteffort/podUID/ID",
            "/kubepods/podUID/ID",
            // containerd set to cgroupfs below a kubelet set to systemd
            "/system.slice/containerd.service/kubepods-burstable-pod_UID.slice:cri-containerd:ID",
            "/kubepods-burstable-pod_UID.slice:cri-containerd:ID",
            // CRI-O, with runc, and with crun, which puts the processes one deeper
            &format!("{burstable}/crio-ID.scope"),
            &format!("{burstable}/crio-ID.scope/container"),
            "/kubepods/burstable/podUID/crio-ID",
            // docker
            &format!("{burstable}/docker-ID.scope"),
            "/kubepods/burstable/podUID/ID/init.scope",
            // kind: a node that is itself a container
            "/system.slice/docker-0000000000000000000000000000000000000000000000000000000000000000.scope/kubelet.slice/\
             kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod_UID.slice/\
             cri-containerd-ID.scope",
            // a docker inside of a pod
            &format!("{burstable}/cri-containerd-ID.scope/docker/{}", "1".repeat(64)),
            // a systemd inside of a container
            &format!("{burstable}/cri-containerd-ID.scope/system.slice/nginx.service"),
        ] {
            assert_eq!(read(path), (Some(UID.to_owned()), true), "{path}");
        }
        let static_pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podSTATIC.slice/crio-ID.scope";
        assert_eq!(read(static_pod), (Some(STATIC.to_owned()), true));
        assert_eq!(read(&format!("{burstable}/crio-conmon-ID.scope")), (Some(UID.to_owned()), false));
        assert_eq!(read(burstable), (Some(UID.to_owned()), false));
    }

    #[test]
    fn a_user_cannot_name_a_cgroup_as_the_pod_of_somebody_else() {
        let of_user = "user.slice/user-1000.slice/user@1000.service";
        for path in [format!("/{of_user}/podUID/ID"), format!("/{of_user}/app.slice/kubepods-pod_UID.slice")] {
            assert_eq!(read(&path).0, None, "{path}");
        }
        // A systemd inside of a container.
        assert_eq!(read(&format!("/kubepods/podUID/ID/{of_user}/app.slice")), (Some(UID.to_owned()), true));
    }

    #[test]
    fn containers_outside_of_pods_and_other_cgroups_are_told_apart() {
        for path in ["/system.slice/docker-ID.scope", "/docker/ID", "/machine.slice/libpod-ID.scope/container"] {
            assert_eq!(read(path), (None, true), "{path}");
        }
        for path in [
            "/",
            "/system.slice/nginx.service",
            "/kubepods.slice",
            "/user.slice/podman-1.scope",
            "/podID",
            "/tripodUID",
        ] {
            assert_eq!(read(path), (None, false), "{path}");
        }
    }
}
