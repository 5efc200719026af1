# Part of scripts/dist.sh: brobust-host for Fedora, RHEL, openSUSE and the like.

build_rpm() { # ARCHITECTURE
	local root=$trees/rpm package="dist/brobust-host-$version-$revision.$1.rpm" scratch
	rm -rf "$root"
	stage_tree "$1" "$root/usr" /usr share/zsh/site-functions
	install -D -m 644 -t "$root/usr/share/licenses/brobust-host" LICENSE LICENSES/*.txt
	date_tree "$root"
	scratch=$(mktemp -d)
	# The files are as they are to be installed, so rpm's own steps after %install (strip, compress) are left out.
	rpmbuild -bb --quiet --define "_topdir $scratch" --define "tree $PWD/$root" --define "version $version" \
		--define "revision $revision" --define '__os_install_post %{nil}' --define 'debug_package %{nil}' \
		--define '_build_id_links none' \
		--define '_buildhost reproducible' --define 'use_source_date_epoch_as_buildtime 1' \
		--define 'clamp_mtime_to_source_date_epoch 1' --define '_rpmdir %{_topdir}' --define '_rpmfilename package.rpm' \
		--target "$1-linux" packaging/rpm/brobust-host.spec >/dev/null
	mv "$scratch/package.rpm" "$package"
	rm -r "$scratch"
	say "$package: $(size "$package")"
}
