#!/usr/bin/env bash
# Installs everything brobust needs on Debian or Ubuntu and leaves the command at .venv/bin/brobust.
# Run again it only does what is missing: a few seconds. Arguments are further Debian packages, for the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
refuse() { say "$*"; exit 2; }

# --- system packages -------------------------------------------------------------------------------------------
packages=(
	qemu-system-x86 seabios iperf3 iproute2 ethtool kmod cpio busybox-static zstd util-linux bash # guests
	clang clang-format libelf-dev zlib1g-dev gcc libc6-dev make pkg-config                        # BPF and libbpf
	flex bison bc patch xz-utils                                                                  # kernels in virtual time
	coccinelle pahole diffutils                                                                   # the repair for kernel trees
	python3 python3-venv ca-certificates
	"$@"
)
missing=()
for package in "${packages[@]}"; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}
install() {
	say "installing $*"
	as_root apt-get update -qq || say "apt-get update failed; trying with what is known"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
command -v apt-get >/dev/null || [ ${#missing[@]} -eq 0 ] || refuse "no apt-get here; install by hand: ${missing[*]}"
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}"

# --- Rust ------------------------------------------------------------------------------------------------------
new_enough() { # VERSION AT_LEAST
	[ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -1)" = "$2" ]
}
wanted_rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
have_rust=$(cargo --version 2>/dev/null | cut -d' ' -f2 || true)
if ! new_enough "${have_rust:-0}" "$wanted_rust"; then
	# Debian stable's own rustc is old; its rustc-web follows the browsers. Ubuntu has versioned packages.
	install rustc-web cargo-web || install cargo-1.85 rustc-1.85 || install cargo rustc
	have_rust=$(cargo --version 2>/dev/null | cut -d' ' -f2 || true)
	new_enough "${have_rust:-0}" "$wanted_rust" ||
		refuse "cargo ${have_rust:-is missing}, needs $wanted_rust or newer; install it with rustup (https://rustup.rs)"
fi

# --- the guests' program, the Python package and its Rust module -----------------------------------------------
say "building"
cargo build --release --quiet --locked -p brobust-guest
mkdir -p python/brobust/guests/bin
# Copy only what changed: guest images are rebuilt when its date does.
cmp -s target/release/brobust-guest python/brobust/guests/bin/brobust-guest ||
	cp target/release/brobust-guest python/brobust/guests/bin/brobust-guest

if [ ! -x .venv/bin/uv ]; then
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || refuse "python3 is older than 3.11"
	python3 -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.8,<1"
fi
UV_PROJECT_ENVIRONMENT=.venv .venv/bin/uv sync --quiet --locked --inexact

# --- the kernel of the backend virtual: built from Debian's sources where neither the cache nor a wheel has it -----
have_virtual_kernel() {
	.venv/bin/python - <<-'PYTHON'
		import sys
		from brobust.errors import BrobustError
		from brobust.virtual import kernels

		try:
		    kernels.find()
		except BrobustError:
		    sys.exit(1)
	PYTHON
}
if ! have_virtual_kernel; then
	say "building the kernel for virtual time from Debian's sources (about 3 minutes, once)"
	if ! .venv/bin/brobust kernel build >/dev/null; then
		say "trying again with fresh package lists"
		as_root apt-get update -qq || true
		.venv/bin/brobust kernel build >/dev/null || say "going on without; \`brobust kernel build\` tries again"
	fi
fi

# --- guest kernels: fetched now, so that no measurement waits for a download -----------------------------------
fetch_kernels() {
	.venv/bin/python - <<-'PYTHON'
		import sys
		from brobust.errors import BrobustError
		from brobust.guests import kernels

		for name in ("debian-6.12", "debian-6.1"):
		    try:
		        kernels.find(name)
		        kernels.headers(name)  # modules for it are compiled against them
		    except BrobustError as error:
		        sys.exit(f"setup: {error}")
	PYTHON
}
if ! fetch_kernels; then
	say "trying again with fresh package lists"
	as_root apt-get update -qq || true
	fetch_kernels || say "going on without; see \`brobust doctor\` for the kernels there are"
fi
say "done: .venv/bin/brobust"
