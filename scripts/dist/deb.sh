# Part of scripts/dist.sh: brobust-host for Debian and Ubuntu.

build_deb() { # ARCHITECTURE
	local root=$trees/deb installed package doc
	package="dist/brobust-host_$version-${revision}_$(debian_name "$1").deb"
	doc=$root/usr/share/doc/brobust-host
	rm -rf "$root"
	stage_tree "$1" "$root/usr" /usr share/zsh/vendor-completions
	install -m 644 packaging/debian/copyright "$doc/copyright"
	changelog_of_debian | gzip -9n >"$doc/changelog.Debian.gz"
	install -D -m 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/brobust-host"
	mkdir "$root/DEBIAN"
	install -m 755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
	# As dpkg-gencontrol counts: what a directory takes, every file system says differently.
	installed=$(find "$root/usr" -type f -printf '%s\n' -o -printf '1\n' |
		awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
	sed "s/@VERSION@/$version-$revision/; s/@ARCHITECTURE@/$(debian_name "$1")/; s/@SIZE@/$installed/
		s/@BUILT_USING@/$(linked_packages "$1")/" \
		packaging/debian/control >"$root/DEBIAN/control"
	(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
	date_tree "$root"
	# Debian 11 and Ubuntu 20.04 do not unpack zstd.
	dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
	say "$package: $(size "$package")"
}

changelog_of_debian() {
	local maintainer
	maintainer=$(sed -n 's/^Maintainer: //p' packaging/debian/control)
	printf 'brobust-host (%s) unstable; urgency=medium\n\n  * Release %s; changelog.gz says what changed.\n\n' \
		"$version-$revision" "$version"
	printf ' -- %s  %s\n' "$maintainer" "$(date --rfc-email --date="@$SOURCE_DATE_EPOCH")"
}

# Prints the Debian sources whose static libraries are in the program, as "elfutils (= 0.188-2.1), ...": whoever passes
# the program on needs them to offer its source.
linked_packages() { # ARCHITECTURE
	local package format='${source:Package} (= ${source:Version})\n'
	if [ "$1" = aarch64 ]; then
		for package in "$aarch64_packages"/*.deb; do
			dpkg-deb --show --showformat "$format" "$package"
		done
	else
		dpkg-query -W -f "$format" libc6-dev libelf-dev zlib1g-dev "libgcc-$(gcc -dumpversion)-dev"
	fi | sort -u | paste -sd, | sed 's/,/, /g'
}
