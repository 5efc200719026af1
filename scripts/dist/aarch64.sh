# Part of scripts/dist.sh: the program for operators for aarch64 (arm64, as Debian calls it), built on this machine.
#
# Debian has all that this takes: a C compiler and binutils (scripts/setup.sh aarch64), and the static libraries of arm64,
# which are fetched and unpacked beside this machine's packages, and not installed among them. Rust's standard library for
# aarch64 is that of the compiler at hand, if it has one (rustup target add aarch64-unknown-linux-gnu); else Debian's
# rustc-web is fetched, of which there are libraries for both.

aarch64_files=$PWD/target/aarch64
aarch64_target=aarch64-unknown-linux-gnu
aarch64_libraries=(libc6-dev libelf-dev zlib1g-dev)

# What was fetched: what is linked, of which components.py reads the versions; and a compiler, if one was needed.
aarch64_packages=$aarch64_files/packages
aarch64_compiler=$aarch64_files/compiler
aarch64_system=$aarch64_files/system

apt_of_both() { # PROGRAM ARGUMENT...
	apt_of "$aarch64_files/apt" "amd64 arm64" "$@"
}

fetch_aarch64() { # DIRECTORY PACKAGE...: puts the packages' files there
	mkdir -p "$1"
	(cd "$1" && apt_of_both apt-get download "${@:2}")
}

# Sets what cargo needs for that target, and fetches it, once.
prepare_aarch64() {
	local package series compiler
	[ ! -e "$aarch64_files/is-complete" ] || return 0
	say "fetching what a program for aarch64 is linked with"
	rm -rf "$aarch64_files"
	mkdir -p "$aarch64_system"
	apt_of_both apt-get update
	fetch_aarch64 "$aarch64_packages" "${aarch64_libraries[@]/%/:arm64}" "libgcc-$(gcc -dumpversion)-dev:arm64" \
		"gcc-$(gcc -dumpversion)-base:arm64"
	for package in "$aarch64_packages"/*.deb; do
		dpkg-deb --extract "$package" "$aarch64_system"
	done
	if [ -z "$(find "$(rustc --print target-libdir --target $aarch64_target)" -name 'libstd-*.rlib' 2>/dev/null)" ]; then
		say "rustc has no library for $aarch64_target; fetching Debian's rustc-web, which has"
		series=$(apt_of_both apt-cache show rustc-web:amd64 | sed -n 's/^Version: \([0-9]*\.[0-9]*\).*/\1/p' | head -1)
		compiler=$(apt_of_both apt-cache show "libstd-rust-web-$series:amd64" | grep -oE 'libllvm[0-9]+' | head -1)
		fetch_aarch64 "$aarch64_files/apt/compiler" rustc-web:amd64 "$compiler:amd64" \
			"libstd-rust-web-$series:amd64" libstd-rust-web-dev:amd64 libstd-rust-web-dev:arm64
		for package in "$aarch64_files"/apt/compiler/*.deb; do
			dpkg-deb --extract "$package" "$aarch64_compiler"
		done
		cat >"$aarch64_compiler/rustc" <<-'SH'
			#!/bin/sh
			here=$(dirname "$(readlink -f "$0")")
			LD_LIBRARY_PATH=$here/usr/lib/x86_64-linux-gnu exec "$here/usr/bin/rustc" "$@"
		SH
		chmod +x "$aarch64_compiler/rustc"
	fi
	rm -rf "$aarch64_files/apt"
	touch "$aarch64_files/is-complete"
}

# Builds the program for operators for aarch64, once.
build_binary_aarch64() {
	local flags libraries=$aarch64_system/usr/lib/aarch64-linux-gnu gcc=aarch64-linux-gnu-gcc
	[ -z "${aarch64_is_built:-}" ] || return 0
	scripts/setup.sh aarch64
	prepare_aarch64
	gather_static_libraries
	flags="-C target-feature=+crt-static --remap-path-prefix=$PWD=/brobust"
	flags+=" --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
	# Of the C library, too, Debian's for arm64, and not that of its compiler for aarch64, which gets no security updates.
	printf '#!/bin/sh\nexec %s -B%s -L%s "$@"\n' "$gcc" "$libraries" "$libraries" >"$aarch64_files/linker"
	chmod +x "$aarch64_files/linker"
	say "building the program for operators for aarch64"
	(
		[ ! -e "$aarch64_compiler/rustc" ] || export RUSTC=$aarch64_compiler/rustc
		# libbpf reads headers of libelf, of which Debian's compiler for aarch64 has none.
		export LIBBPF_SYS_EXTRA_CFLAGS="-I$aarch64_system/usr/include"
		export LIBBPF_SYS_LIBRARY_PATH_aarch64_unknown_linux_gnu=$libraries
		export LIBBPF_SYS_LIBRARY_PATH_x86_64_unknown_linux_gnu=$static_libraries
		export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$aarch64_files/linker
		export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS=$flags
		export CC_aarch64_unknown_linux_gnu=$gcc AR_aarch64_unknown_linux_gnu=aarch64-linux-gnu-ar
		# What runs here while it builds is for this machine; in a directory of its own, since its compiler may be another.
		CONST_RANDOM_SEED=brobust CARGO_TARGET_DIR=$aarch64_files/cargo cargo build --profile dist --quiet --locked \
			--target $aarch64_target --features brobust-command/static --package brobust-command
	)
	aarch64_is_built=yes
	say "$(program_of aarch64): $(size "$(program_of aarch64)")"
}
