#!/usr/bin/env bash
# Keeps what cargo compiled of other people's crates in the cache, so that a fresh clone need not compile them again:
#
#   restore    takes it, if the cache has it and nothing is built here yet
#   keep       leaves it there, if the cache does not have it
#
# Only crates of the registry are kept. Cargo tells by Cargo.lock, features, profile and compiler whether they fit, and
# compiles those again that do not. Our own crates it compares by date, which between two clones means nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/brobust/rust
key=$({ cargo --version; printf '%s\n' "${RUSTFLAGS:-}"; cat Cargo.lock Cargo.toml crates/*/Cargo.toml; } | sha256sum | cut -c1-16)
kept=$cache/$key.tar.zst

case ${1:-} in
restore)
	rm -rf target/kept # of a call that was killed
	[ ! -d target/release ] && [ ! -d target/debug ] && [ -f "$kept" ] || exit 0
	# What is in it runs while we build: root takes nothing that another user may have put there, as in a home that sudo
	# has kept.
	[ "$(id -u)" -ne 0 ] || { [ -O "$cache" ] && [ -O "$kept" ]; } || exit 0
	# Cargo would take half a file for a whole one: its place is taken by what is complete.
	mkdir -p target/kept
	if tar --zstd -xf "$kept" -C target/kept; then
		mv target/kept/* target/
	else
		rm -f "$kept"
	fi
	rm -rf target/kept
	;;
keep)
	[ ! -f "$kept" ] || exit 0
	mkdir -p "$cache"
	rm -f "$cache"/*.tar* # for other versions of our dependencies
	find "$cache" -name 'being-written.*' -mmin +60 -delete # by a call that was killed
	being_written=$(mktemp "$cache/being-written.XXXXXX")
	trap 'rm -f "$being_written"' EXIT
	# In this format dates keep their fractions; without them, a crate could look older than one it was compiled from.
	cd target
	find release debug -type f \( -path '*/build/*' -o -path '*/.fingerprint/*' -o -path '*/deps/*.*' \) \
		! -path '*brobust*' ! -name '_core*' ! -name 'lib_core*' -print0 |
		tar --format=posix --null -T - --use-compress-program "zstd -q -T0" -cf "$being_written"
	sync "$being_written"
	mv "$being_written" "$kept"
	;;
*)
	echo "rust_deps: give restore or keep" >&2
	exit 2
	;;
esac
