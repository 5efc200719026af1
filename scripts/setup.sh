#!/usr/bin/env bash
# Installs what brobust needs on Debian or Ubuntu, for the named parts:
#
#   virtual    the command at .venv/bin/brobust and a kernel: all that virtual time needs
#   vm         QEMU, the program inside the guests, their kernels
#   lab        sshd, for the tests of backend lab
#   trees      the repairs for kernel trees
#   lint       what `make lint` needs in addition to Python's and Rust's own tools
#   browser    the browser that opens the report in tests
#   dist       what scripts/dist.sh packs with
#   aarch64    the C compiler with which it builds the program for operators for ARM64
#   dist-test  what scripts/dist-test.sh tries packages with
#   docs       the generator of the documentation's site
#
# Without arguments: virtual, vm and trees. A second call only adds what is missing, and takes a few seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
refuse() { say "$*"; exit 2; }

parts=" ${*:-virtual vm trees} "
# The Rust part of the Python package loads BPF, whatever the backend: hence clang and libbpf's libraries.
packages=(python3 python3-venv ca-certificates clang libelf-dev zlib1g-dev gcc libc6-dev make pkg-config zstd)
groups=()
for part in $parts; do
	case $part in
	virtual) packages+=(flex bison bc patch xz-utils bzip2) ;;
	vm) packages+=(qemu-system-x86 seabios iperf3 iproute2 ethtool kmod cpio busybox-static util-linux bash) ;;
	lab) packages+=(openssh-client openssh-server iperf3 iproute2 ethtool) ;;
	trees) packages+=(coccinelle pahole diffutils) ;;
	lint) packages+=(clang-format) ;;
	browser) packages+=(chromium) ;;
	docs) groups+=(--group docs) ;;
	dist) packages+=(dpkg-dev git rpm) ;;
	aarch64) packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross) ;;
	dist-test) packages+=(apt-utils gnupg rpm mmdebstrap skopeo umoci runc systemd iproute2 qemu-system-arm cpio kmod) ;;
	*) refuse "$part: no such part; the parts are virtual, vm, lab, trees, lint, browser, dist, aarch64, dist-test and docs" ;;
	esac
done

# Before minutes are spent: User Mode Linux, and what controls its clock, are for x86.
[ "$(uname -m)" = x86_64 ] || refuse "this machine is $(uname -m); brobust is built on x86-64, also for ARM64 (docs/install.md)"

# --- system packages -------------------------------------------------------------------------------------------
missing=()
for package in "${packages[@]}"; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}
update() { # one call at a time: kernels are fetched in the background
	as_root flock scripts/setup.sh apt-get update -qq
}
# What this puts on the host, or starts, only until it ends: also when it is interrupted.
policy=/usr/sbin/policy-rc.d placed= beside=() # deb-systemd-invoke(1) asks it
our_policy="# of brobust's scripts/setup.sh, process"
policy_is_of_killed() {
	local process
	process=$(sed -n "s|^$our_policy ||p" $policy 2>/dev/null) || return 1
	[ -n "$process" ] && ! grep -qs setup.sh "/proc/$process/cmdline"
}
! policy_is_of_killed || placed=yes
leave() {
	[ -z "$placed" ] || as_root rm -f $policy
	placed=
	[ ${#beside[@]} -eq 0 ] || kill "${beside[@]}" 2>/dev/null || true
}
trap leave EXIT
# What a package would start, such as sshd, is not started: tests start their own, in network namespaces.
install() {
	local status=0
	say "installing $*"
	update || say "apt-get update failed; trying with the package lists that are here"
	if [ ! -e $policy ] || [ -n "$placed" ]; then
		placed=yes
		printf '#!/bin/sh\n%s %s\nexit 101\n' "$our_policy" $$ | as_root tee $policy >/dev/null && as_root chmod +x $policy
	fi
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null || status=$?
	leave
	[[ " $* " != *" openssh-server "* ]] || as_root systemctl --quiet disable ssh.service ssh.socket 2>/dev/null || true
	return $status
}
command -v apt-get >/dev/null || [ ${#missing[@]} -eq 0 ] || refuse "there is no apt-get here; install these by hand: ${missing[*]}"
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}" ||
	refuse "packages are missing and could not be installed, see above; as root: apt-get install ${missing[*]}"

# --- Rust ------------------------------------------------------------------------------------------------------
new_enough() { # VERSION AT_LEAST
	[ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -1)" = "$2" ]
}
wanted_rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
have_rust=$(cargo --version 2>/dev/null | cut -d' ' -f2 || true)
if ! new_enough "${have_rust:-0}" "$wanted_rust"; then
	# Debian stable's own rustc is old; its rustc-web is kept recent for the browsers. Ubuntu has versioned packages.
	install rustc-web cargo-web || install cargo-1.85 rustc-1.85 || install cargo rustc
	have_rust=$(cargo --version 2>/dev/null | cut -d' ' -f2 || true)
	new_enough "${have_rust:-0}" "$wanted_rust" ||
		refuse "cargo ${have_rust:-is missing}, but $wanted_rust or newer is needed; install it with rustup (https://rustup.rs)"
fi

# --- the Python package and its Rust module; the kernel for virtual time is built beside them -------------------------
# The build tools have fixed versions, as the dependencies have in the lock files: uv in uv.txt, maturin in pyproject.toml.
wanted_uv=$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' scripts/uv.txt)
if [ ! -x .venv/bin/python ] || [ "$(.venv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != "$wanted_uv" ]; then
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || refuse "python3 is older than 3.11"
	# A call that was killed, or `make clean`, may have left a part. What pip has half installed counts as installed.
	.venv/bin/python -m pip install --help >/dev/null 2>&1 || python3 -m venv --clear .venv
	rm -rf .venv/lib/python3*/site-packages/uv{,-*.dist-info}
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r scripts/uv.txt
fi
# What is packed is built by scripts/dist.sh itself.
[[ ! $parts =~ ^(\ (dist|aarch64|dist-test))+\ $ ]] || exit 0
sync() {
	local again=()
	# uv takes a package for whole of which a call that was killed has installed a part.
	[ ! -e .venv/being-synced ] || again=(--reinstall)
	touch .venv/being-synced
	UV_PROJECT_ENVIRONMENT=.venv .venv/bin/uv sync --quiet --locked --inexact "${again[@]}" "${groups[@]}" "$@"
	rm .venv/being-synced
}
# Fetching and building kernels takes only Python, so it need not wait for Rust. It ends when this script ends.
unbuilt() {
	PYTHONPATH=python setpriv --pdeathsig TERM .venv/bin/python "$@"
}

virtual_kernel() { # prints the name of the kernel for virtual time if it is built
	unbuilt - <<-'PYTHON'
		import sys
		from brobust.errors import BrobustError
		from brobust.kernels import virtual as kernels
		from brobust.kernels.sources import Order

		try:
		    print(kernels.find(kernels.DEFAULT if kernels.cached(kernels.DEFAULT) else Order.of_default().name).name)
		except BrobustError:
		    sys.exit(1)
	PYTHON
}
build_virtual_kernel() { # unless the cache has it
	virtual_kernel >/dev/null && return
	say "building the kernel for virtual time from the distribution's sources (2 to 12 minutes, once)"
	unbuilt -m brobust kernel build >/dev/null && return
	say "trying again with fresh package lists"
	update || true
	unbuilt -m brobust kernel build >/dev/null || say "continuing without it; \`brobust kernel build\` tries again"
}
guest_kernel() { # prints the name of the kernel that guests boot by default, if it is here
	unbuilt - <<-'PYTHON'
		import sys
		from brobust.kernels import vm as kernels

		name = kernels.default()
		if kernels.available().get(name, "apt").startswith("apt"):
		    sys.exit(1)
		print(name)
	PYTHON
}
fetch_kernels() { # now, so that no measurement waits for a download
	unbuilt - <<-'PYTHON'
		import sys
		from brobust.errors import BrobustError
		from brobust.kernels import vm as kernels

		default, offered = kernels.default(), kernels.available()
		# In addition to the default, the kernels that tests and studies name, if they are offered.
		for name in dict.fromkeys([default, *(name for name in ("debian-6.12", "debian-6.1") if name in offered)]):
		    try:
		        kernels.find(name)
		        if name.startswith("debian-"):
		            kernels.headers(name)  # modules for it are compiled against them
		    except BrobustError as error:
		        sys.exit(f"setup: {error}")
	PYTHON
}
fetch_guest_kernels() {
	fetch_kernels && return
	say "trying again with fresh package lists"
	update || true
	fetch_kernels || say "continuing without them; \`brobust doctor\` lists the kernels that are here"
}

sync --no-install-project --extra study
if [[ $parts == *" virtual "* ]]; then
	build_virtual_kernel &
	beside+=($!)
fi
if [[ $parts == *" vm "* ]]; then
	fetch_guest_kernels &
	beside+=($!)
fi
say "building"
scripts/rust_deps.sh restore
sync --extra study
programs=("brobust-command python/brobust/bin brobust-host" "brobust-client python/brobust/virtual/bin brobust-client")
# In one call, and always all: each set of packages has its own features of others' crates, and would be compiled again.
cargo build --release --quiet --locked $(printf -- '-p %s ' "${programs[@]%% *}")
for program in "${programs[@]}"; do # and put where the Python package looks for them
	read -r _ directory name <<<"$program"
	mkdir -p "$directory"
	# Copy only a changed file: a new date makes guest images be rebuilt. As a whole: `brobust watch` may be running.
	cmp -s "target/release/$name" "$directory/$name" ||
		{ cp "target/release/$name" "$directory/.$name.new" && mv "$directory/.$name.new" "$directory/$name"; }
done
for process in "${beside[@]}"; do
	wait "$process"
done
beside=()
ready=
if [[ $parts == *" virtual "* ]]; then
	if kernel=$(virtual_kernel); then
		ready+=" virtual ($kernel)"
	else
		say "backend virtual cannot run, because it has no kernel; see above"
	fi
fi
if [[ $parts == *" vm "* ]]; then
	if kernel=$(guest_kernel); then
		ready+=" vm ($kernel)"
	else
		say "backend vm cannot run, because its guests have no kernel; see above"
	fi
fi
if [ -n "$ready" ]; then
	say "done: .venv/bin/brobust, backends$ready"
elif [[ $parts == *" virtual "* || $parts == *" vm "* ]]; then
	refuse "no backend can run"
fi
