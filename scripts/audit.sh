#!/usr/bin/env bash
# Looks up known vulnerabilities of everything in the lock files: uv.lock in OSV's data, Cargo.lock in RustSec's.
# Exit status 1: at least one is known; 2: one of the two files could not be checked. No test uses this, since both databases
# are fetched from the network. Without a network, AUDIT_OFFLINE=1 checks Cargo.lock against ~/.cargo/advisory-db.
set -uo pipefail
cd "$(dirname "$0")/.."

say() { printf 'audit: %s\n' "$*" >&2; }
status=0

said=$(.venv/bin/uv audit --locked 2>&1)
case $? in
0) say "uv.lock: no known vulnerabilities" ;;
1)
	printf '%s\n' "$said"
	status=1
	;;
*)
	say "uv.lock was not checked, because its advisories could not be fetched: $(printf '%s\n' "$said" | sed -n 's/^ *cause: //p' | tail -1)"
	status=2
	;;
esac

if ! cargo audit --version >/dev/null 2>&1; then
	say "Cargo.lock was not checked, because cargo-audit is missing: cargo install --locked cargo-audit"
	exit 2
fi
if said=$(cargo audit ${AUDIT_OFFLINE:+--no-fetch} 2>&1); then
	say "Cargo.lock: no known vulnerabilities"
elif printf '%s\n' "$said" | grep -q 'vulnerabilit.* found'; then
	printf '%s\n' "$said"
	[ $status -eq 2 ] || status=1
else
	say "Cargo.lock was not checked, because its advisories could not be fetched: $(printf '%s\n' "$said" | tail -1)"
	status=2
fi
exit $status
