# Part of scripts/dist-test.sh: brobust-host as a Debian package.

test_deb() { # SUITE
	local suite=$1 package before begun install
	package=$(released 'brobust-host_*_amd64.deb')
	fresh_root "$suite"
	before=$(files)
	cp "$package" "$root/tmp/package.deb"
	begun=$EPOCHREALTIME
	inside root dpkg --install /tmp/package.deb >/dev/null
	install=$(since "$begun")
	try_program /usr
	[ ! -e "$root/etc/systemd/system/multi-user.target.wants/brobust-watch.service" ] ||
		fail "the package enables its unit"
	row deb "$suite" "$(megabytes "$package")" "$(megabytes_of_package)" "$install s" "$first s" none

	# As `systemctl enable` does, and a command that was killed.
	mkdir -p "$root/etc/systemd/system/multi-user.target.wants" "$root/run/brobust-watch"
	ln -s /usr/lib/systemd/system/brobust-watch.service "$root/etc/systemd/system/multi-user.target.wants/"
	inside root dpkg --remove brobust-host >/dev/null
	inside root dpkg --purge brobust-host >/dev/null
	rmdir --ignore-fail-on-non-empty "$root/etc/systemd/system/multi-user.target.wants"
	nothing_is_left "$before"
}

megabytes_of_package() {
	inside root dpkg-query -W -f '${Installed-Size}' brobust-host | awk '{ printf "%.1f MB", $1 * 1.024 / 1000 }'
}

# --- for every form of the program ---------------------------------------------------------------------------------

released() { # PATTERN: prints the one file of dist/ of that name
	local found=(dist/$1)
	[ ${#found[@]} -eq 1 ] && [ -e "${found[0]}" ] || refuse "dist/ has no $1, or more than one; make dist builds it"
	echo "${found[0]}"
}

try_program() { # PREFIX: runs the first commands of what is installed there; $first becomes the seconds of the first
	local prefix=$1 begun page status=0
	begun=$EPOCHREALTIME
	inside stranger brobust --version >"$work/said" || fail "--version: $(cat "$work/said")"
	first=$(since "$begun")
	grep -q "^brobust $(scripts/version.sh)" "$work/said" ||
		fail "--version: $(cat "$work/said")"
	inside stranger brobust watch --once --interval 200ms --window 1s >"$work/said" 2>&1 || status=$?
	[ $status -eq 0 ] || fail "watch --once: $status, $(cat "$work/said")"
	inside root brobust cc list >"$work/said" 2>&1 || fail "cc list: $(cat "$work/said")"
	grep -q brb_bbr3_steady "$work/said" || fail "cc list names no control: $(cat "$work/said")"
	inside root sh -c 'sleep 60 & brobust contend --pid $! --threads $! --share 25% --dry-run
		status=$?; kill $!; exit $status' >"$work/said" 2>&1 || fail "contend --dry-run: $(cat "$work/said")"
	# A mistake is one line and exit status 2.
	inside stranger brobust watch --interval 0 >"$work/said" 2>&1 && fail "watch --interval 0 is taken"
	[ "$(wc -l <"$work/said")" -eq 1 ] || fail "watch --interval 0 is refused in more than one line: $(cat "$work/said")"
	for page in brobust brobust-watch brobust-cc-load brobust-contend; do
		[ -e "$root$prefix/share/man/man1/$page.1.gz" ] || fail "there is no $page(1)"
	done
	[ -e "$root$prefix/share/bash-completion/completions/brobust" ] || fail "bash completes nothing"
	[ -e "$root$prefix/share/brobust/brobust-watch.json" ] || fail "the dashboard is missing"
	[ -e "$root$prefix/share/brobust/prometheus/brobust-rules.yaml" ] || fail "the rules are missing"
	page=$(sed -n 's|.*runbook_url: file://\(.*\)#.*|\1|p' "$root$prefix/share/brobust/prometheus/brobust-rules.yaml" | sort -u)
	[ -z "$page" ] || [ -s "$root$page" ] || fail "alerts link to $page, which is missing"
	# No systemd runs in a minimal system, so this host's looks at the unit: no mistake in it, and not much exposed.
	sed "s|ExecStart=|&$root|" "$root$prefix/lib/systemd/system/brobust-watch.service" >"$work/brobust-watch.service"
	systemd-analyze verify --man=no "$work/brobust-watch.service" >"$work/said" 2>&1 || fail "the unit: $(cat "$work/said")"
	systemd-analyze security --offline=true --threshold=20 "$work/brobust-watch.service" >"$work/said" 2>&1 ||
		fail "the unit: $(cat "$work/said")"
}

nothing_is_left() { # WHAT_FILES_PRINTED_BEFORE
	rm -rf "$root"/tmp/*
	files | diff <(echo "$1") - >"$work/said" || fail "after removal: $(cat "$work/said")"
	[ -z "$(find "$root/run" -name 'brobust*')" ] || fail "after removal: $(find "$root/run" -name 'brobust*')"
}

# Without directories, which several packages may have in common.
only_files() {
	(cd "$root" && while IFS= read -r path; do [ -d "$path" ] || echo "$path"; done)
}
