# Part of scripts/dist.sh: the program for operators as a container image that has nothing but the program.

build_image() {
	local root=$trees/image package="dist/brobust-host-$version-oci.tar"
	build_binary
	rm -rf "$root"
	install -D -m 755 "$binary" "$root/usr/bin/brobust"
	install -D -m 644 -t "$root/usr/share/licenses/brobust-host" LICENSE LICENSES/*.txt
	python3 scripts/dist/components.py notices brobust-command >"$root/usr/share/licenses/brobust-host/third-party-notices"
	mkdir -m 755 "$root/etc"
	echo 'root:x:0:0::/:' >"$root/etc/passwd"
	echo 'nobody:x:65534:65534::/:' >>"$root/etc/passwd"
	python3 scripts/dist/image.py "$version" "$package" "amd64=$root"
	say "$package: $(size "$package")"
}
