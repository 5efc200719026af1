# Part of scripts/dist.sh: our Rust programs as files that need no library of the host.
#
# The same sources give the same bytes wherever the checkout is, as long as the compilers and the static libraries are
# the same (rustc, clang, gcc; libc.a, libelf.a, libz.a). So no path of the builder may be left in a program.

static_programs=target/x86_64-unknown-linux-gnu/dist
binary=$static_programs/brobust-host

# Builds both programs, once, whichever is wanted: cargo gives dependencies the features that the programs built together
# need, so one of them alone would have other bytes.
build_binary() {
	local libraries flags library
	[ -z "${binary_is_built:-}" ] || return 0
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
	say "building the program for operators, and the one for guests"
	# ahash, which parquet uses, would draw a seed at each build.
	CONST_RANDOM_SEED=brobust LIBBPF_SYS_LIBRARY_PATH=$libraries RUSTFLAGS=$flags \
		cargo build --profile dist --quiet --locked \
		--target x86_64-unknown-linux-gnu --features static --package brobust-command --package brobust-guest
	binary_is_built=yes
	say "$binary: $(size $binary)"
}
