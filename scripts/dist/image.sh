# Part of scripts/dist.sh: the program for operators as a container image that has nothing but the program.

build_image() {
	local architecture root package="dist/brobust-host-$version-oci.tar" roots=()
	build_binary
	rm -rf "$trees/image"
	for architecture in "${architectures[@]}"; do
		root=$trees/image/$architecture
		install -D -m 755 "$(program_of "$architecture")" "$root/usr/bin/brobust"
		install -D -m 644 -t "$root/usr/share/licenses/brobust-host" LICENSE LICENSES/*.txt
		python3 scripts/dist/components.py notices --architecture "$architecture" brobust-command \
			>"$root/usr/share/licenses/brobust-host/third-party-notices"
		mkdir -m 755 "$root/etc"
		echo 'root:x:0:0::/:' >"$root/etc/passwd"
		echo 'nobody:x:65534:65534::/:' >>"$root/etc/passwd"
		roots+=("$(debian_name "$architecture")=$root")
	done
	python3 scripts/dist/image.py "$version" "$package" "${roots[@]}"
	say "$package: $(size "$package")"
}
