#!/usr/bin/env bash
# Looks up known vulnerabilities of everything in the lock files of Python and Rust, ours and those of the QUIC stacks:
# uv.lock in OSV's data, each Cargo.lock in RustSec's. (go.sum has more than a stack is built of.)
# Exit status 1: at least one is known; 2: a file could not be checked. No test uses this, since both databases are
# fetched from the network. Without a network, AUDIT_OFFLINE=1 checks each Cargo.lock against ~/.cargo/advisory-db.
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
for lock in Cargo.lock examples/quic/*/Cargo.lock; do
	if said=$(cargo audit --file "$lock" ${AUDIT_OFFLINE:+--no-fetch} 2>&1); then
		say "$lock: no known vulnerabilities"
	elif printf '%s\n' "$said" | grep -q 'vulnerabilit.* found'; then
		printf '%s\n' "$said"
		say "$lock: at least one known vulnerability"
		[ $status -eq 2 ] || status=1
	else
		say "$lock was not checked, because its advisories could not be fetched: $(printf '%s\n' "$said" | tail -1)"
		status=2
	fi
done
exit $status
