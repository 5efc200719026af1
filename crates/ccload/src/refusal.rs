//! Why a control was not loaded or not removed, and the remedy.

use std::path::PathBuf;
use std::{env, io};

#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("there is no control named {name}; the controls are {known}")]
    Unknown { name: String, known: String },

    #[error(
        "loading a congestion control takes root, or CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF: run this with sudo"
    )]
    Privilege,

    /// Although we have the capabilities.
    #[error("bpf(2), by which congestion controls are loaded, is refused here ({reason}) by {by}")]
    NoBpf { reason: String, by: &'static str },

    #[error(
        "this kernel does not describe its types (no readable /sys/kernel/btf/vmlinux): use one with CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf,

    #[error("this kernel takes no TCP congestion controls from BPF: use Linux 6.1 or newer with CONFIG_BPF_JIT=y")]
    NoStructOps,

    #[error(
        "this kernel has no BBR to build on ({reason}): use one with CONFIG_TCP_CONG_BBR and, if BBR is a module, \
         CONFIG_DEBUG_INFO_BTF_MODULES=y"
    )]
    NoBbr { reason: String },

    /// Until Linux 6.9 net/ipv4/tcp_bbr.c offers its functions to BPF on x86 only.
    #[error("this kernel lets no BPF call its own BBR, on which {name} builds: use Linux 6.10 or newer, or {instead}")]
    NoCallsOfBbr { name: String, instead: String },

    /// pahole did not recognise the kernel's types in those of the module, as in Debian's 7.2: the verifier compares a
    /// socket with the module's.
    #[error(
        "this kernel's module tcp_bbr describes struct sock a second time in its BTF, so that no BPF can call its BBR, on \
         which {name} builds: load {instead}, or use a kernel with BBR built in"
    )]
    TypesOfBbr { name: String, instead: String },

    #[error(
        "struct {structure} of this kernel has no field {field}, so its BBR is not the version 1 that {name} knows: \
         use a kernel with mainline's tcp_bbr"
    )]
    OtherLayout { name: String, structure: String, field: String },

    #[error("{name} has no parameter {param}: `brobust cc params {name}` lists its parameters")]
    NoParam { name: String, param: String },

    #[error(
        "{name}: a running kernel has no pacing stride: leave master_stride at 1, or measure it on backend virtual"
    )]
    NoStride { name: String },

    #[error("{name} builds on the kernel's own BBR or CUBIC and cannot record its calls: take one of cc/controls")]
    NoRecording { name: String },

    #[error("{name} has no map {map}: load it again, with this version of brobust and with what you want to read")]
    NoMap { name: String, map: String },

    #[error("the calls that {name} has recorded cannot be read ({reason}): please report this with `uname -r`")]
    Unread { name: String, reason: String },

    #[error("{name} is already a congestion control of this kernel: unload it first")]
    NameTaken { name: String },

    #[error("{name} is not loaded: `brobust cc list` shows what is loaded")]
    NotLoaded { name: String },

    #[error("{name} is a congestion control of this kernel that brobust did not load: remove it the way it came")]
    NotOurs { name: String },

    #[error("there is no BPF file system to pin {name} in ({reason}): mount -t bpf bpf /sys/fs/bpf")]
    NoBpffs { name: String, reason: String },

    #[error("cannot pin {name} at {}: {reason}", path.display())]
    Pin { name: String, path: PathBuf, reason: String },

    /// `log` holds the last lines that libbpf and the verifier wrote.
    #[error(
        "the kernel did not accept {name} ({reason}): please report this with `uname -r` and what `{} lab cc load \
         --verbose {name}` prints",
        this_program()
    )]
    Rejected { name: String, reason: String, log: Vec<String> },

    #[error("{name} is still there after it was unloaded ({reason}): find who registers it with `bpftool struct_ops`")]
    StillThere { name: String, reason: String },
}

impl Refusal {
    /// Says why the kernel did not accept a control, from what it and libbpf wrote.
    pub(crate) fn rejected(name: &str, reason: String, log: Vec<String>) -> Refusal {
        let said = |words: &str, end: &str| {
            log.iter().any(|line| line.contains("kernel function bbr_") && line.contains(words) && line.ends_with(end))
        };
        let instead = match name.trim_start_matches("bbr_") {
            "shadow" => "brb_bbr1".to_owned(),
            repair => format!("brb_bbr1_{repair}"),
        };
        let name = name.to_owned();
        if said("calling", "not allowed") {
            return Refusal::NoCallsOfBbr { name, instead };
        }
        if said("expected pointer to STRUCT sock but", "STRUCT tcp_sock") {
            return Refusal::TypesOfBbr { name, instead };
        }
        Refusal::Rejected { name, reason, log }
    }

    /// Returns the last lines of the verifier, if it was the verifier that refused.
    pub fn log(&self) -> &[String] {
        match self {
            Refusal::Rejected { log, .. } => log,
            _ => &[],
        }
    }
}

/// Returns where this program is: packages call it brobust, and the Python package has it beside its modules.
fn this_program() -> String {
    env::current_exe().map_or_else(|_| "brobust".to_owned(), |path| path.display().to_string())
}

/// Returns what the system says about an error, without its number.
pub(crate) fn without_number(error: &io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_lets_no_bpf_call_its_bbr_is_named_with_a_remedy() {
        let said =
            |line: &str| Refusal::rejected("bbr_steady", "EINVAL".into(), vec![line.into(), "processed 9".into()]);
        let refusal = said("calling kernel function bbr_init is not allowed").to_string();
        assert!(refusal.contains("Linux 6.10 or newer") && refusal.ends_with("or brb_bbr1_steady"), "{refusal}");
        let types =
            "kernel function bbr_init R1 expected pointer to STRUCT sock but R1 has a pointer to STRUCT tcp_sock";
        let refusal = said(types).to_string();
        assert!(refusal.contains("load brb_bbr1_steady, or use a kernel"), "{refusal}");
        for other in ["calling kernel function bpf_x is not allowed", "R1 is not allowed"] {
            assert!(matches!(said(other), Refusal::Rejected { .. }), "{other}");
            // The command that it names is there, under whichever name.
            let refusal = said(other).to_string();
            let program = refusal.split('`').nth(3).and_then(|command| command.split(' ').next());
            assert!(program.is_some_and(|program| std::path::Path::new(program).is_file()), "{refusal}");
        }
    }
    #[test]
    fn who_cannot_load_a_control_is_told_of_one_that_exists() {
        let log = vec!["calling kernel function bbr_init is not allowed".to_owned()];
        for (name, instead) in
            [("bbr_steady", "brb_bbr1_steady"), ("bbr_robust", "brb_bbr1_robust"), ("bbr_shadow", "brb_bbr1")]
        {
            let refusal = Refusal::rejected(name, "EINVAL".to_owned(), log.clone());
            assert!(refusal.to_string().ends_with(&format!(" {instead}")), "{refusal}");
        }
    }
}
