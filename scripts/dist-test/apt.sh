# Part of scripts/dist-test.sh: the repository for apt, signed by a key of nobody's, as apt installs from it.

test_apt() { # SUITE
	local suite=$1 home before begun install first
	fresh_root "$suite"
	before=$(files | grep -v '^./var/lib/apt')
	home=$(mktemp -d) # gpg-agent's socket needs a short name
	GNUPGHOME=$home gpg --batch --quiet --passphrase '' --quick-gen-key release@brobust.invalid ed25519 sign 2>/dev/null
	mkdir -p "$root/srv/apt/pool"
	cp dist/brobust-host_*.deb "$root/srv/apt/pool/"
	GNUPGHOME=$home scripts/apt.sh "$root/srv/apt" release@brobust.invalid
	GNUPGHOME=$home gpgconf --kill gpg-agent
	rm -r "$home"
	cat >"$root/etc/apt/sources.list.d/brobust.sources" <<-END
		Types: deb
		URIs: file:/srv/apt
		Suites: stable
		Components: main
		Signed-By: /srv/apt/brobust.asc
	END
	only_ours='-o Dir::Etc::sourcelist=/dev/null'
	begun=$EPOCHREALTIME
	# shellcheck disable=SC2086
	inside root apt-get $only_ours update >"$work/said" 2>&1 || fail "apt-get update: $(cat "$work/said")"
	! grep -qE '^(W|E):' "$work/said" || fail "apt-get update: $(cat "$work/said")"
	# shellcheck disable=SC2086
	inside root apt-get $only_ours install --yes brobust-host >"$work/said" 2>&1 ||
		fail "apt-get install: $(cat "$work/said")"
	install=$(since "$begun")
	begun=$EPOCHREALTIME
	inside stranger brobust --version >"$work/said" || fail "--version: $(cat "$work/said")"
	first=$(since "$begun")
	row apt "$suite" "$(megabytes "$root/srv/apt")" "$(megabytes_of_package)" "$install s" "$first s" none
	inside root apt-get purge --yes brobust-host >/dev/null 2>&1
	# apt believes the signature, not whoever wrote the files.
	sed -i 's/^Origin: brobust$/Origin: somebody/' "$root/srv/apt/dists/stable/InRelease"
	rm "$root/srv/apt/dists/stable/Release.gpg"
	# shellcheck disable=SC2086
	inside root apt-get $only_ours update >"$work/said" 2>&1 || true
	grep -qE 'BADSIG|not signed|invalid' "$work/said" || fail "apt believes a changed Release: $(cat "$work/said")"
	rm -r "$root/srv/apt" "$root/etc/apt/sources.list.d/brobust.sources"
	files | grep -v '^./var/lib/apt' | diff <(echo "$before") - >"$work/said" || fail "after removal: $(cat "$work/said")"
}
