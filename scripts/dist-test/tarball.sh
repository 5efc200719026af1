# Part of scripts/dist-test.sh: brobust-host from the tarball, with the commands of its README.

test_tarball() { # SUITE
	local suite=$1 archive directory before begun install
	archive=$(released 'brobust-host-*-linux-x86_64.tar.gz')
	fresh_root "$suite"
	before=$(files | only_files)
	tar -C "$root/tmp" -xf "$archive"
	directory=/tmp/$(ls "$root/tmp")
	begun=$EPOCHREALTIME
	inside root sh -c "cd $directory && $(command_of_readme Install)"
	install=$(since "$begun")
	try_program /usr/local
	row tarball "$suite" "$(megabytes "$archive")" "$(megabytes "$root$directory")" "$install s" "$first s" none
	inside root sh -c "cd $directory && $(command_of_readme Remove)"
	rm -r "${root:?}$directory"
	! files | grep brobust || fail "after removal: a directory of ours is left"
	[ "$(files | only_files)" = "$before" ] || fail "after removal: $(files | only_files | diff <(echo "$before") -)"
}

command_of_readme() { # KEY: without sudo, which a minimal system does not have, and without the remark in brackets
	sed -n "s/^$1: *//p" "$root"/tmp/*/README | sed 's/sudo //g; s/  *(any.*//'
}
