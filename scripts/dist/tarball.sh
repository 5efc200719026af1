# Part of scripts/dist.sh: brobust-host for every other system. It is unpacked over /usr/local.

build_tarball() {
	local name=brobust-host-$version-linux-x86_64 root package
	root=$trees/tarball/$name package=dist/$name.tar.gz
	rm -rf "$trees/tarball"
	stage_tree "$root" "" /share/zsh/site-functions
	sed -i 's|ExecStart=/|ExecStart=/usr/local/|' "$root/lib/systemd/system/brobust-watch.service"
	install -D -m 644 -t "$root/share/doc/brobust-host" LICENSE LICENSES/*.txt
	cat >"$root/README" <<-README
		Install: sudo cp -r bin lib share /usr/local/        (any Linux on x86-64; no other package is needed)
		Begin:   brobust watch; man brobust; sudo systemctl daemon-reload && sudo systemctl enable --now brobust-watch
		Remove:  sudo rm -r /usr/local/bin/brobust /usr/local/share/{brobust,doc/brobust-host,man/man1/brobust*} /usr/local/lib/systemd/system/brobust-watch.service
	README
	date_tree "$root"
	tar --directory "$trees/tarball" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu --create "$name" | gzip -9n >"$package"
	say "$package: $(size "$package")"
}
