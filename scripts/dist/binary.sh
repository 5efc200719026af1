# Part of scripts/dist.sh: our Rust programs as files that need no library of the host.
#
# The same sources give the same bytes wherever the checkout is, as long as the compilers and the static libraries are
# the same (rustc, clang, gcc; libc.a, libelf.a, libz.a). So no path of the builder may be left in a program.

static_programs=target/x86_64-unknown-linux-gnu/dist

build_static() { # PACKAGE...: their programs are then in $static_programs
	local libraries flags library packages
	printf -v packages ' --package %s' "$@"
	libraries=$(dirname "$(gcc -print-file-name=libelf.a)")
	flags="-C target-feature=+crt-static --remap-path-prefix=$PWD=/brobust"
	flags+=" --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
	# What libelf.a needs itself: on Debian 13 it decompresses zstd as well.
	for library in $(pkg-config --static --libs-only-l libelf); do
		case $library in
		-lelf | -lz) ;;
		*) flags+=" -C link-arg=$library" ;;
		esac
	done
	say "building $*"
	# shellcheck disable=SC2086  # each is a word of its own
	LIBBPF_SYS_LIBRARY_PATH=$libraries RUSTFLAGS=$flags cargo build --profile dist --quiet --locked \
		--target x86_64-unknown-linux-gnu --features static $packages
}

binary=$static_programs/brobust-host

build_binary() {
	[ -z "${binary_is_built:-}" ] || return 0
	build_static brobust-command
	binary_is_built=yes
	say "$binary: $(size $binary)"
}
