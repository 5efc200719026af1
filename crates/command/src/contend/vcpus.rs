//! The vCPU threads of a running VM of any hypervisor, known by the names of its threads.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use brobust_host::processes::{self, Process};
use brobust_host::{names, printable, Owner, Refusal, Result};

use crate::numbers;

/// Names of a program and of its vCPU threads (/proc/PID/comm, at most 15 bytes).
struct Hypervisor {
    name: &'static str,
    is_program: fn(&str) -> bool,
    /// Returns the number of the vCPU; 0 where its name has none, and None for any other thread's name.
    number: fn(&str) -> Option<u32>,
}

const HYPERVISORS: &[Hypervisor] = &[
    // accel/kvm/kvm-accel-ops.c, accel/tcg/tcg-accel-ops-*.c; only with -name ...,debug-threads=on, which libvirt gives
    Hypervisor {
        name: "QEMU",
        // qemu:web-1 where libvirt's qemu.conf has set_process_name
        is_program: |name| name.starts_with("qemu-") || name.starts_with("qemu:") || name == "kvm" || name == "qemu",
        number: |name| match name.strip_prefix("CPU ") {
            None => (name == "ALL CPUs/TCG").then_some(0),
            Some(rest) => {
                let (number, accelerator) = rest.split_once('/')?;
                let is_word = !accelerator.is_empty() && accelerator.bytes().all(|byte| byte.is_ascii_alphabetic());
                is_word.then(|| digits(number)).flatten()
            }
        },
    },
    // src/VBox/VMM/VMMR3/VM.cpp: a number only where there are several
    Hypervisor {
        name: "VirtualBox",
        is_program: |name| name.starts_with("VBox") || name == "VirtualBoxVM" || name == "VirtualBox",
        number: |name| match name.strip_prefix("EMT") {
            Some("") => Some(0),
            rest => digits(rest?.strip_prefix('-')?),
        },
    },
    Hypervisor {
        name: "VMware",
        is_program: |name| name.starts_with("vmware-vmx") || name.starts_with("vmx"),
        number: |name| digits(name.strip_prefix("vmx-vcpu-")?),
    },
    // src/vmm/src/vstate/vcpu.rs
    Hypervisor {
        name: "Firecracker",
        is_program: |name| name.starts_with("firecracker") || name.starts_with("fc_"),
        number: |name| digits(name.strip_prefix("fc_vcpu ")?),
    },
    // vmm/src/cpu.rs
    Hypervisor {
        name: "cloud-hypervisor",
        is_program: |name| name.starts_with("cloud-hyperviso"),
        number: |name| digits(name.strip_prefix("vcpu")?),
    },
];

fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A thread that is to be put under contention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vcpu {
    pub thread: Owner,
    pub name: String,
    /// Number of the vCPU; None if the thread was named by its id.
    pub number: Option<u32>,
}

/// A process and its vCPU threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub pid: i32,
    pub program: String,
    /// Name of the VM, where its command line says it.
    pub name: String,
    pub vcpus: Vec<Vcpu>,
    /// Whether it is a known hypervisor: contention for any other process reaches only that process itself.
    pub is_known: bool,
}

impl Machine {
    pub fn tids(&self) -> Vec<i32> {
        self.vcpus.iter().map(|vcpu| vcpu.thread.pid).collect()
    }
}

/// Which VM: one of the first three has to be given.
#[derive(clap::Args)]
pub struct VmOptions {
    /// The VM that QEMU was started for with this -name
    #[arg(long, value_name = "NAME")]
    qemu: Option<String>,
    /// The VM that is this domain of libvirt
    #[arg(long, value_name = "DOMAIN")]
    libvirt: Option<String>,
    /// The VM of this process, or any other process
    #[arg(long, value_name = "PID", value_parser = numbers::process_id)]
    pid: Option<i32>,
    /// The threads: auto (its vCPUs), or ids as in 4711,4712
    #[arg(long, value_name = "IDS", default_value = "auto")]
    threads: String,
}

impl VmOptions {
    /// Returns the machine with its vCPU threads, or with those whose ids were listed.
    pub fn find(&self) -> Result<Machine> {
        let pid = match (&self.qemu, &self.libvirt, self.pid) {
            (Some(name), None, None) => named(&processes::all(), "--qemu", name)?,
            (None, Some(name), None) => named(&processes::all(), "--libvirt", name)?,
            (None, None, Some(pid)) => pid,
            _ => return Err(Refusal::bad_input("say which VM, by one of --qemu NAME, --libvirt DOMAIN, --pid PID")),
        };
        machine(Path::new("/proc"), pid, &self.threads)
    }
}

fn machine(proc: &Path, pid: i32, threads: &str) -> Result<Machine> {
    let names = threads_of(proc, pid);
    if names.is_empty() {
        return Err(Refusal::bad_input(format!("--pid: there is no process {pid}")));
    }
    let program = name_in(&proc.join(pid.to_string())).unwrap_or_else(|| "?".into());
    let hypervisor = HYPERVISORS.iter().find(|one| (one.is_program)(&program));
    let vcpus = match threads {
        "auto" => vcpus_of(hypervisor, &names),
        ids => listed(ids, pid, &names)?,
    };
    if vcpus.is_empty() {
        return Err(Refusal::bad_input(nothing_found(pid, &program, hypervisor, &names)));
    }
    refuse_ended(&vcpus, &threads_of(proc, pid))?;
    let command = processes::of(pid).map(|process| process.command).unwrap_or_default();
    Ok(Machine {
        pid,
        program: hypervisor.map_or(program, |one| one.name.into()),
        name: printable(&guest_name(&command).0),
        vcpus,
        is_known: hypervisor.is_some(),
    })
}

/// Refuses threads that have ended since they were found: when each was asked for its start, by which it is known from then
/// on, another process's may have had its id. `names`: those of the process, read after that.
fn refuse_ended(vcpus: &[Vcpu], names: &BTreeMap<i32, String>) -> Result<()> {
    match vcpus.iter().find(|vcpu| names.get(&vcpu.thread.pid) != Some(&vcpu.name)) {
        None => Ok(()),
        Some(ended) => Err(Refusal::bad_input(format!(
            "thread {} ({}) has just ended, or changed its name: is the VM still running?",
            ended.thread.pid, ended.name
        ))),
    }
}

fn vcpus_of(hypervisor: Option<&Hypervisor>, names: &BTreeMap<i32, String>) -> Vec<Vcpu> {
    // A wrapper may have renamed the process: its threads identify it too.
    let candidates = hypervisor.map_or(HYPERVISORS, std::slice::from_ref);
    let of = |one: &Hypervisor| -> Vec<Vcpu> {
        let numbered = names.iter().filter_map(|(tid, name)| Some((*tid, name, (one.number)(name)?)));
        numbered.map(|(tid, name, number)| vcpu(tid, name, Some(number))).collect()
    };
    let mut found = candidates.iter().map(of).find(|found| !found.is_empty()).unwrap_or_default();
    found.sort_by_key(|vcpu| (vcpu.number, vcpu.thread));
    found
}

fn vcpu(tid: i32, name: &str, number: Option<u32>) -> Vcpu {
    Vcpu { thread: Owner::of(tid), name: name.into(), number }
}

fn listed(ids: &str, pid: i32, names: &BTreeMap<i32, String>) -> Result<Vec<Vcpu>> {
    let mut found = Vec::new();
    for word in ids.split(',').map(str::trim) {
        let tid: i32 = word.parse().map_err(|_| {
            Refusal::bad_input(format!("--threads: '{word}' is no thread id; give auto, or ids as in 4711,4712"))
        })?;
        let name = names.get(&tid).ok_or_else(|| {
            let known = list(names);
            Refusal::bad_input(format!("--threads: {tid} is no thread of process {pid}; its threads are {known}"))
        })?;
        let one = vcpu(tid, name, None);
        if !found.contains(&one) {
            found.push(one);
        }
    }
    Ok(found)
}

fn nothing_found(pid: i32, program: &str, hypervisor: Option<&Hypervisor>, names: &BTreeMap<i32, String>) -> String {
    let threads = list(names);
    match hypervisor {
        Some(Hypervisor { name: "QEMU", .. }) => format!(
            "process {pid} ({program}) does not name its threads; start it with -name NAME,debug-threads=on, or give \
             --threads with the thread-id of each vCPU (QMP: query-cpus-fast); its threads are {threads}"
        ),
        _ => format!(
            "process {pid} ({program}) has no thread with a vCPU's name; give --threads with some of its threads: {threads}"
        ),
    }
}

fn list(names: &BTreeMap<i32, String>) -> String {
    let shown: Vec<String> = names.iter().take(8).map(|(tid, name)| format!("{tid} ({name})")).collect();
    shown.join(", ") + if names.len() > 8 { ", ..." } else { "" }
}

/// Returns the QEMU that was started with this name.
fn named(processes: &[Process], option: &str, name: &str) -> Result<i32> {
    let qemus = processes.iter().filter(|process| (HYPERVISORS[0].is_program)(&process.name));
    let (mut found, mut known) = (Vec::new(), Vec::new());
    for process in qemus {
        let (called, is_libvirts) = guest_name(&process.command);
        if option == "--libvirt" && !is_libvirts {
            continue;
        }
        if called == name && !name.is_empty() {
            found.push(process.pid);
        }
        known.push(if called.is_empty() { "one without a name".into() } else { called });
    }
    if let [pid] = found[..] {
        return Ok(pid);
    }
    if !found.is_empty() {
        return Err(Refusal::bad_input(format!(
            "{option}: several VMs are called '{name}'; give --pid with one of {found:?}"
        )));
    }
    known.sort();
    known.dedup();
    let there = if known.is_empty() { "none".into() } else { known.join(", ") };
    Err(Refusal::bad_input(format!("{option}: no running VM is called '{name}'; there is {there}")))
}

/// Returns QEMU's -name, and whether it is written as libvirt writes it (guest=NAME,debug-threads=on).
fn guest_name(command: &[String]) -> (String, bool) {
    for pair in command.windows(2) {
        if pair[0] == "-name" || pair[0] == "--name" {
            let fields = fields(&pair[1]);
            let libvirts = fields.iter().find_map(|field| field.strip_prefix("guest="));
            let name = libvirts.or(fields.first().map(String::as_str)).unwrap_or_default();
            return (name.into(), libvirts.is_some());
        }
    }
    (String::new(), false)
}

/// Splits an option of QEMU at its commas. A value's own comma is written twice, and a word of a command has no NUL.
fn fields(option: &str) -> Vec<String> {
    option.replace(",,", "\0").split(',').map(|field| field.replace('\0', ",")).collect()
}

/// Returns names by thread id; none where there is no such process.
fn threads_of(proc: &Path, pid: i32) -> BTreeMap<i32, String> {
    let tasks = proc.join(pid.to_string()).join("task");
    names(&tasks).filter_map(|tid| Some((tid.parse().ok()?, name_in(&tasks.join(tid))?))).collect()
}

fn name_in(directory: &Path) -> Option<String> {
    let bytes = fs::read(directory.join("comm")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(printable(text.strip_suffix('\n').unwrap_or(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const PID: i32 = 900_000_000; // beyond every real one

    /// Returns a directory like /proc with one process.
    fn proc_with(program: &str, names: &[&[u8]]) -> TempDir {
        let root = tempfile::tempdir().expect("made");
        let process = root.path().join(PID.to_string());
        for (number, name) in names.iter().enumerate() {
            let task = process.join("task").join((PID + number as i32).to_string());
            fs::create_dir_all(&task).expect("made");
            fs::write(task.join("comm"), [name, b"\n".as_slice()].concat()).expect("written");
        }
        fs::write(process.join("comm"), format!("{program}\n")).expect("written");
        root
    }

    fn of(program: &str, names: &[&str], threads: &str) -> Result<Machine> {
        let bytes: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        machine(proc_with(program, &bytes).path(), PID, threads)
    }

    #[test]
    fn whoever_has_the_id_of_a_thread_that_has_ended_is_not_taken_for_it() {
        let found = [vcpu(7, "CPU 0/KVM", Some(0)), vcpu(8, "CPU 1/KVM", Some(1))];
        let now = |threads: &[(i32, &str)]| {
            let names = threads.iter().map(|(tid, name)| (*tid, (*name).to_owned())).collect();
            refuse_ended(&found, &names).map_err(|refusal| refusal.text)
        };
        assert_eq!(now(&[(7, "CPU 0/KVM"), (8, "CPU 1/KVM"), (9, "worker")]), Ok(()));
        for others in [&[(7, "CPU 0/KVM")][..], &[(7, "CPU 0/KVM"), (8, "worker")]] {
            let refused = now(others).unwrap_err();
            assert!(refused.starts_with("thread 8 (CPU 1/KVM) has just ended"), "{refused}");
        }
    }

    #[test]
    fn vcpus_are_known_by_their_names() {
        // Threads as the hypervisors name them, beside some that are none of ours.
        let recorded: [(&str, &[&str], &[&str]); 10] = [
            (
                "qemu-system-x86",
                &["qemu-system-x86", "IO mon_iothread", "CPU 1/KVM", "CPU 0/KVM", "worker"],
                &["CPU 0/KVM", "CPU 1/KVM"],
            ),
            ("qemu-kvm", &["qemu-kvm", "call_rcu", "CPU 0/TCG"], &["CPU 0/TCG"]),
            ("qemu-system-x86", &["qemu-system-x86", "ALL CPUs/TCG"], &["ALL CPUs/TCG"]),
            ("qemu:web-1", &["qemu:web-1", "CPU 0/KVM"], &["CPU 0/KVM"]),
            (
                "VBoxHeadless",
                &["VBoxHeadless", "EMT-10", "EMT-2", "EMT-0", "VDMA", "TAP"],
                &["EMT-0", "EMT-2", "EMT-10"],
            ),
            ("VirtualBoxVM", &["VirtualBoxVM", "EMT", "nspr-3"], &["EMT"]),
            ("vmware-vmx", &["vmware-vmx", "vmx-mks", "vmx-vcpu-0", "vmx-vcpu-1"], &["vmx-vcpu-0", "vmx-vcpu-1"]),
            ("firecracker", &["firecracker", "fc_api", "fc_vcpu 0", "fc_vcpu 1"], &["fc_vcpu 0", "fc_vcpu 1"]),
            ("cloud-hyperviso", &["cloud-hyperviso", "vmm", "vcpu0", "vcpu1", "_net0_qp0"], &["vcpu0", "vcpu1"]),
            // The jailer of Firecracker may have renamed the process: its threads tell.
            ("vm-4711", &["vm-4711", "fc_api", "fc_vcpu 0"], &["fc_vcpu 0"]),
        ];
        for (program, names, wanted) in recorded {
            let machine = of(program, names, "auto").expect(program);
            assert_eq!(machine.vcpus.iter().map(|vcpu| vcpu.name.as_str()).collect::<Vec<_>>(), wanted);
            assert_eq!(machine.is_known, program != "vm-4711");
        }
    }

    #[test]
    fn a_machine_whose_threads_tell_nothing_is_refused_with_the_remedy() {
        let qemu = ["qemu-system-x86", "qemu-system-x86"];
        let refused = of(qemu[0], &qemu, "auto").unwrap_err().text;
        assert!(refused.contains("debug-threads=on") && refused.contains("--threads"), "{refused}");
        let machine = of(qemu[0], &qemu, &format!("{}", PID + 1)).expect("it is there");
        assert_eq!(machine.vcpus.iter().map(|vcpu| vcpu.thread.pid).collect::<Vec<_>>(), [PID + 1]);
        assert!(of(qemu[0], &qemu, "5").unwrap_err().text.contains(&format!("5 is no thread of process {PID}")));
        assert!(of(qemu[0], &qemu, "x").unwrap_err().text.contains("'x' is no thread id"));
        let other = of("nginx", &["nginx"], "auto").unwrap_err().text;
        assert!(other.contains("(nginx) has no thread with a vCPU's name") && other.ends_with("900000000 (nginx)"));
    }

    #[test]
    fn vms_are_known_by_the_names_that_they_were_started_with() {
        // Command lines as of libvirt 9.0 and QEMU 7.2.
        let started: [(i32, &[&str]); 7] = [
            (11, &["/usr/bin/qemu-system-x86_64", "-name", "guest=web-1,debug-threads=on", "-S"]),
            (12, &["qemu-system-x86_64", "-m", "64", "-name", "lab"]),
            (13, &["qemu-system-x86_64", "-name", "twin"]),
            (14, &["qemu-system-x86_64", "-name", "twin,debug-threads=on"]),
            (15, &["qemu-system-x86_64", "-m", "64"]),
            (16, &["qemu-system-x86_64", "-name", "a,,b"]),
            (17, &["qemu-system-x86_64", "-name", "guest=a,,,debug-threads=on"]),
        ];
        let processes = started.map(|(pid, words)| Process {
            pid,
            started: 1,
            parent: 1,
            name: "qemu-system-x86".into(),
            command: words.iter().map(|word| (*word).to_owned()).collect(),
        });
        assert_eq!(named(&processes, "--libvirt", "web-1"), Ok(11));
        assert_eq!(named(&processes, "--qemu", "web-1"), Ok(11));
        assert_eq!(named(&processes, "--qemu", "lab"), Ok(12));
        assert_eq!(named(&processes, "--qemu", "a,b"), Ok(16), "QEMU takes two commas for one");
        assert_eq!(named(&processes, "--libvirt", "a,"), Ok(17));
        let refused = |option, name| named(&processes, option, name).unwrap_err().text;
        assert_eq!(refused("--libvirt", "lab"), "--libvirt: no running VM is called 'lab'; there is a,, web-1");
        assert!(refused("--qemu", "").starts_with("--qemu: no running VM is called ''"), "not the one without a name");
        assert!(refused("--qemu", "twin").ends_with("called 'twin'; give --pid with one of [13, 14]"));
        assert!(refused("--qemu", "db").ends_with("there is a,, a,b, lab, one without a name, twin, web-1"));
    }

    #[test]
    fn the_name_of_somebodys_thread_reaches_no_terminal_as_an_escape_sequence() {
        let proc = proc_with("sh", &[b"a\x1b[2J\nb\xff"]);
        let machine = machine(proc.path(), PID, &PID.to_string()).expect("it is there");
        assert_eq!(machine.vcpus[0].name, "a\\x1b[2J\\x0ab\u{fffd}");
    }
}
