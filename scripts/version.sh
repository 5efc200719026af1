#!/usr/bin/env bash
# Prints the version, or gives the next release its own, everywhere where it stands (docs/releasing.md):
#
#   scripts/version.sh                   prints that of Cargo.toml
#   scripts/version.sh 0.3.0 [DATE]      DATE of the release as YYYY-MM-DD; default: today
#
# Giving it changes files and commits nothing; `git diff` shows what. `scripts/release.sh versions` checks the result.
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() { printf 'version: %s\n' "$*" >&2; exit 2; }

old=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
[ $# -gt 0 ] || { echo "$old"; exit; }
new=$1 date=${2:-$(date +%F)}
[[ $new =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || refuse "${new:-''} is no version; give three numbers, as in 0.3.0"
[[ $date =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] || refuse "$date is no date; give it as YYYY-MM-DD"
[ "$(printf '%s\n' "$old" "$new" | sort -V | tail -1)" = "$new" ] && [ "$new" != "$old" ] ||
	refuse "$new is not later than $old, which Cargo.toml has"
grep -qx '## Not released yet' CHANGELOG.md || refuse "CHANGELOG.md does not begin with 'Not released yet': what is new in $new?"

sed -i "/^\[workspace.package\]/,/^\$/s/^version = .*/version = \"$new\"/" Cargo.toml
sed -i "0,/^## Not released yet\$/s//## $new/" CHANGELOG.md
sed -i "s/^version: .*/version: \"$new\"/; /^date-released: /d; /^version: /a date-released: \"$date\"" CITATION.cff
dots=${old//./\\.}
for page in README.md docs/*.md packaging/kubernetes/*.yaml; do
	sed -i -E "s/(brobust(-host)?[-_:]|newTag: \"?|git tag -s v|-m \"brobust )$dots/\1$new/g" "$page"
done
# As cargo writes it; `scripts/release.sh locks` asks cargo.
sed -i "/^name = \"brobust/{n; s/^version = \"$dots\"/version = \"$new\"/}" Cargo.lock
printf 'version: %s is now %s; next: read CHANGELOG.md as a user of %s, commit, scripts/release.sh\n' "$old" "$new" "$old"
