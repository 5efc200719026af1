# Part of scripts/dist.sh: the sources, of which distributions build, and which the licences of what is linked ask for.

build_source() {
	local package="dist/brobust-$version-source.tar.gz"
	git rev-parse -q --verify HEAD >/dev/null || refuse "source is what git knows, and this is no checkout of git"
	git archive --format=tar --prefix="brobust-$version/" HEAD | gzip -9n >"$package"
	say "$package: $(size "$package")"
}
