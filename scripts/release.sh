#!/usr/bin/env bash
# Walks through the checklist of a release (docs/releasing.md) as far as that goes on one machine, and says what a human
# must do afterwards.
#
#   scripts/release.sh [STEP...]      the steps, in this order: versions, tree, locks, docs, dist, checksums, dist-test
#
# A step that fails does not end it. Exit status 1 if any has failed, 2 for a step that does not exist.
set -uo pipefail
cd "$(dirname "$0")/.."

all_steps=(versions tree locks docs dist checksums dist-test)
version=$(scripts/version.sh)
wrong() { printf '  %s\n' "$*" >&2; }
refuse() { printf 'release: %s\n' "$*" >&2; exit 2; }
. scripts/parts.sh

check_versions() {
	local status=0 other page
	other=$(sed -n 's/^## \([^ ]*\).*/\1/p' CHANGELOG.md | head -1)
	[ "$other" = "$version" ] || { wrong "CHANGELOG.md begins with $other, Cargo.toml has $version"; status=1; }
	other=$(grep -A1 '^name = "brobust' Cargo.lock | sed -n 's/^version = "\(.*\)"/\1/p' | grep -vx "$version" | head -1)
	[ -z "$other" ] || { wrong "Cargo.lock has $other, Cargo.toml has $version"; status=1; }
	grep -qx "version: \"$version\"" CITATION.cff || { wrong "CITATION.cff is not of version $version"; status=1; }
	for page in README.md docs/*.md packaging/kubernetes/*.yaml; do
		other=$(grep -oE '(brobust(-host)?[-_:]|newTag: "?)[0-9]+\.[0-9]+\.[0-9]+' "$page" | grep -vF "$version" | head -1)
		[ -z "$other" ] || { wrong "$page names $other, the version is $version"; status=1; }
	done
	return $status
}

check_tree() {
	local status=0 branch
	[ -z "$(git status --porcelain)" ] || { wrong "uncommitted: $(git status --porcelain | head -3 | tr '\n' ';')"; status=1; }
	branch=$(git branch --show-current)
	[ "$branch" = main ] || { wrong "the branch is ${branch:-none}, not main"; status=1; }
	return $status
}

check_locks() {
	cargo metadata --locked --offline --format-version 1 >/dev/null && .venv/bin/uv lock --check --offline --quiet
}

check_docs() {
	.venv/bin/pytest -q -m "not virtual" tests/test_docs.py >&2 && make docs >&2
}

check_dist() {
	make dist >&2
}

check_checksums() {
	local status=0 file
	(cd dist && sha256sum --quiet -c SHA256SUMS) >&2 || status=1
	for file in dist/*; do
		case $file in
		dist/SHA256SUMS*) ;;
		*"$version"*) grep -q "  ${file#dist/}\$" dist/SHA256SUMS || { wrong "$file is not in SHA256SUMS"; status=1; } ;;
		*) wrong "$file is of another version than $version"; status=1 ;;
		esac
	done
	return $status
}

check_dist-test() {
	make dist-test >&2
}

[ $# -gt 0 ] || set -- "${all_steps[@]}"
check_names step "${all_steps[*]}" "$@"
do_each check_ "release: $version is not ready" "$@"
[ $# -lt ${#all_steps[@]} ] ||
	printf 'release: what you do next: docs/releasing.md, "Publish" (tag, build again, scripts/publish.sh, upload)\n'
