# Part of scripts/dist.sh: our Rust programs as files that need no library of the host.
#
# The same sources give the same bytes wherever the checkout is, as long as the compilers and the static libraries are
# the same (rustc, clang, gcc; libc.a, libelf.a, libz.a). So no path of the builder may be left in a program.

static_programs=target/x86_64-unknown-linux-gnu/dist

program_of() { # ARCHITECTURE: prints where the program for operators is, after it was built
	case $1 in
	x86_64) echo "$static_programs/brobust-host" ;;
	aarch64) echo "$aarch64_files/cargo/$aarch64_target/dist/brobust-host" ;;
	esac
}

debian_name() { # ARCHITECTURE: prints how Debian, and Go, call it
	case $1 in
	x86_64) echo amd64 ;;
	aarch64) echo arm64 ;;
	esac
}

# libelf.a and libz.a for whoever links them, in one directory.
static_libraries=$PWD/target/static-libraries

# Puts into libelf.a what it needs itself: newer ones decompress zstd as well.
gather_static_libraries() {
	local library symbols
	rm -rf "$static_libraries"
	mkdir -p "$static_libraries"
	{
		echo "create $static_libraries/libelf.a"
		for library in $(pkg-config --static --libs-only-l libelf); do
			[ "$library" = -lz ] || echo "addlib $(gcc -print-file-name="lib${library#-l}.a")"
		done
		echo save
	} | ar -M
	cp "$(gcc -print-file-name=libz.a)" "$static_libraries/"
	# elfutils 0.192 forgets a file of its own in libelf.a.
	symbols=$(nm "$static_libraries/libelf.a" 2>/dev/null)
	[[ $symbols != *" U eu_search_tree_init"* || $symbols == *" T eu_search_tree_init"* ]] ||
		refuse "the libelf.a of this system (Debian 13 has it) lacks eu_search_tree_init; build on Debian 12"
}

build_binary() {
	local architecture
	for architecture in "${architectures[@]}"; do
		"build_binary_$architecture"
	done
}

# Builds our programs, once, whichever is wanted: cargo gives dependencies the features that the programs built together
# need, so one of them alone would have other bytes.
build_binary_x86_64() {
	local flags
	[ -z "${binary_is_built:-}" ] || return 0
	gather_static_libraries
	flags="-C target-feature=+crt-static --remap-path-prefix=$PWD=/brobust"
	flags+=" --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
	say "building the program for operators, and the client"
	# ahash, which parquet uses, would draw a seed at each build.
	CONST_RANDOM_SEED=brobust LIBBPF_SYS_LIBRARY_PATH=$static_libraries RUSTFLAGS=$flags \
		cargo build --profile dist --quiet --locked \
		--target x86_64-unknown-linux-gnu --features brobust-command/static --package brobust-command --package brobust-client
	binary_is_built=yes
	say "$(program_of x86_64): $(size "$(program_of x86_64)")"
}
