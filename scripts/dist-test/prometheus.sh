# Part of scripts/dist-test.sh: the rules and the dashboard's queries in a real Prometheus beside a real `brobust watch`.
# Debian's is fetched and unpacked, and not installed, since its package starts a service.

test_prometheus() { # SUITE, which rules do not depend on
	local kept begun
	[ "$1" = "${suites[0]}" ] || return 0
	kept=${XDG_CACHE_HOME:-$HOME/.cache}/brobust-dist-test/prometheus
	if [ ! -x "$kept/usr/bin/promtool" ]; then
		say "fetching Prometheus"
		mkdir -p "$kept"
		(cd "$kept" && apt-get download -qq -o APT::Sandbox::User=root prometheus &&
			dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool ./usr/bin/prometheus && rm prometheus_*.deb)
	fi
	begun=$EPOCHREALTIME
	"$kept/usr/bin/promtool" check rules packaging/prometheus/brobust-rules.yaml >"$work/said" 2>&1 ||
		fail "the rules: $(cat "$work/said")"
	"$kept/usr/bin/promtool" test rules packaging/prometheus/brobust-rules-test.yaml >"$work/said" 2>&1 ||
		fail "the rules: $(cat "$work/said")"
	python3 scripts/dist-test/prometheus.py "$kept/usr/bin/prometheus" "$(released 'brobust-host-*-linux-x86_64.tar.gz')" \
		>"$work/said" 2>"$work/complaints" || fail "Prometheus: $(cat "$work/complaints")"
	row rules any "$(megabytes packaging/prometheus)" - - "$(since "$begun") s" "$(cat "$work/said")"
}
