# Part of scripts/dist.sh: brobust-host for every other system. It is unpacked over /usr/local.

build_tarball() { # ARCHITECTURE
	local name=brobust-host-$version-linux-$1 root package
	root=$trees/tarball/$name package=dist/$name.tar.gz
	rm -rf "$trees/tarball"
	stage_tree "$1" "$root" /usr/local share/zsh/site-functions
	install -D -m 644 -t "$root/share/doc/brobust-host" LICENSE LICENSES/*.txt
	cat >"$root/README" <<-README
		Install: sudo cp -rf bin lib share /usr/local/     (any Linux on ${1/_/-}; no other package is needed)
		Begin:   brobust watch; man brobust; sudo systemctl daemon-reload; sudo systemctl enable --now brobust-watch
		Upgrade: install the new one; sudo systemctl daemon-reload; sudo systemctl try-restart brobust-watch
		Stop:    sudo systemctl disable --now brobust-watch; sudo brobust doctor --clean      (before you remove it)
		Remove:  find bin lib share -depth \\( -type f -o -path '*brobust*' \\) | (cd /usr/local && sudo xargs rm -d)
	README
	date_tree "$root"
	tar --directory "$trees/tarball" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu --create "$name" |
		gzip -9n >"$package"
	say "$package: $(size "$package")"
}
