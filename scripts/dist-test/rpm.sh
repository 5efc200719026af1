# Part of scripts/dist-test.sh: brobust-host as an rpm, installed by Debian's rpm: no system that comes with it can be
# fetched here. --nodeps, since /bin/sh is not in its database.

test_rpm() { # SUITE
	local suite=$1 package before begun install
	package=$(released 'brobust-host-*.x86_64.rpm')
	[ -z "$(rpm --query --package --requires "$package" | grep -vE '^(/bin/sh|rpmlib\(.*)')" ] ||
		fail "the rpm needs something: $(rpm --query --package --requires "$package")"
	rpm --checksig "$package" >/dev/null || fail "rpm finds the package damaged"
	fresh_root "$suite" rpm
	inside root rpm --query --all >/dev/null # creates the database
	before=$(files | only_files)
	cp "$package" "$root/tmp/package.rpm"
	begun=$EPOCHREALTIME
	# Without plugins: one of them wants mounts that a chroot does not have.
	inside root rpm --install --nodeps --noplugins /tmp/package.rpm
	install=$(since "$begun")
	try_program /usr
	row rpm "$suite" "$(megabytes "$package")" \
		"$(rpm --query --package --queryformat '%{SIZE}' "$package" | awk '{ printf "%.1f MB", $1 / 1e6 }')" \
		"$install s" "$first s" none
	inside root rpm --erase --noplugins brobust-host
	files | only_files | grep -v '/\.rpm\.lock$' | diff <(echo "$before") - >"$work/said" ||
		fail "after removal: $(cat "$work/said")"
}
