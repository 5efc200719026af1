# Part of scripts/dist.sh: the program for operators as one file that needs no library of the host.
#
# The same sources give the same bytes wherever the checkout is, as long as the compilers and the static libraries are the
# same (rustc, clang, gcc; libc.a, libelf.a, libz.a). So no path of the builder may be left in the program.

binary_target=x86_64-unknown-linux-gnu
binary=target/$binary_target/dist/brobust-host

build_binary() {
	[ -z "${binary_is_built:-}" ] || return 0
	local libraries flags library
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
	say "building the program for operators"
	LIBBPF_SYS_LIBRARY_PATH=$libraries RUSTFLAGS=$flags \
		cargo build --profile dist --quiet --locked --target $binary_target -p brobust-command --features static
	binary_is_built=yes
	say "$binary: $(size $binary)"
}
