#!/usr/bin/env bash
# Says what is known to be vulnerable of all that the lock files name: uv.lock by OSV's data, Cargo.lock by RustSec's.
# Exit status 1: something is; 2: it could not be asked for one of them. No test needs it, since both are fetched now, or,
# for Cargo.lock, taken from ~/.cargo/advisory-db where there is no network: AUDIT_OFFLINE=1.
set -uo pipefail
cd "$(dirname "$0")/.."

say() { printf 'audit: %s\n' "$*" >&2; }
status=0

said=$(.venv/bin/uv audit --locked 2>&1)
case $? in
0) say "uv.lock: nothing known" ;;
1)
	printf '%s\n' "$said"
	status=1
	;;
*)
	say "uv.lock was not checked, its advisories could not be fetched: $(printf '%s\n' "$said" | sed -n 's/^ *cause: //p' | tail -1)"
	status=2
	;;
esac

if ! cargo audit --version >/dev/null 2>&1; then
	say "Cargo.lock was not checked, cargo-audit is missing: cargo install --locked cargo-audit"
	exit 2
fi
if said=$(cargo audit ${AUDIT_OFFLINE:+--no-fetch} 2>&1); then
	say "Cargo.lock: nothing known"
elif printf '%s\n' "$said" | grep -q 'vulnerabilit.* found'; then
	printf '%s\n' "$said"
	[ $status -eq 2 ] || status=1
else
	say "Cargo.lock was not checked, its advisories could not be fetched: $(printf '%s\n' "$said" | tail -1)"
	status=2
fi
exit $status
