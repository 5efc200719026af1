//! Where the headers are that C and Rust share: the only place of the Rust tests that knows.

use crate::Header;

macro_rules! include {
    ($directory:literal) => {
        concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../", $directory)
    };
}

/// The contract of a congestion control and its recorded calls, as programs include them.
pub const CC: Header =
    Header { code: "#include \"call.h\"", arguments: &[include!("cc/hosts/program"), include!("cc")] };

/// A whole control as crates/cc/build.rs compiles it: the contract and the table of its functions.
pub const CONTROL: Header = Header {
    code: "#include \"controls/brb_cubic.c\"",
    arguments: &[include!("cc/hosts/program"), include!("cc"), "-DCC_PARAM_SECTION=\"cc_params_brb_cubic\""],
};

/// The memory that a kernel in virtual time shares with its controller, as its code against the C library includes it.
pub const VIRTUAL_KERNEL: Header = Header {
    code: "#include \"brobust.h\"",
    arguments: &[include!("kernel/virtual/tree/arch/um/brobust"), "-D__UM_HOST__"],
};

/// The events of the BPF program that records when threads run. The header's attribute for BPF means nothing here.
pub const RECORDER: Header =
    Header { code: "#include \"recorder.bpf.h\"", arguments: &[include!("crates/contention/src"), "-Wno-attributes"] };

/// The kernel's socket diagnosis, from the kernel headers that the C library brings.
pub const INET_DIAG: Header = Header { code: "#include <linux/inet_diag.h>", arguments: &[] };

/// The kernel's struct tcp_info.
pub const TCP: Header = Header { code: "#include <linux/tcp.h>", arguments: &[] };
