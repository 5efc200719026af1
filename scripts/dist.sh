#!/usr/bin/env bash
# Builds what is released, into dist/: everything, or only the named parts, and only for the named architectures:
#
#   scripts/dist.sh [PART...] [x86_64] [aarch64]
#
#   wheel      the Python package with its kernels for virtual time
#   binary     brobust-host, the program for operators: one file that needs no library of the host
#   deb, rpm, tarball
#              that program with man pages, completion, systemd unit and dashboard
#   image      that program as an OCI image
#   sbom       what the wheel and the program consist of, as CycloneDX
#   source     the files of the commit, from which all but the wheel is built without git, too
#
# Every call ends with the checksums of all files in dist/. The same commit gives the same bytes on the same release of
# Debian (docs/releasing.md says what they depend on); SOURCE_DATE_EPOCH is the time of the commit unless it is given.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'dist: %s\n' "$*" >&2; }
refuse() { say "$*"; exit 2; }
. scripts/parts.sh
size() { # FILE
	du --apparent-size -k "$1" | awk '{ printf "%.1f MB", $1 / 1000 }'
}

all_parts=(wheel deb rpm tarball image sbom source)
architectures=() parts=()
check_names part "${all_parts[*]} binary x86_64 aarch64" "$@"
for name in "$@"; do
	case $name in
	x86_64 | aarch64) architectures+=("$name") ;;
	*) parts+=("$name") ;;
	esac
done
[ ${#parts[@]} -gt 0 ] || parts=("${all_parts[@]}")
[ ${#architectures[@]} -gt 0 ] || architectures=(x86_64 aarch64)

scripts/setup.sh dist
version=$(scripts/version.sh)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null)} ||
	refuse "this is no checkout of git, which knows the time of its commit; give SOURCE_DATE_EPOCH, in seconds"
export SOURCE_DATE_EPOCH
# What the packages contain must not depend on who builds them, in which language and time zone.
export LC_ALL=C.UTF-8 TZ=UTC
umask 022
mkdir -p dist
# What a call that was killed, or has failed, had begun to write would get a checksum as if it were whole.
begun=dist/.being-written
[ ! -e $begun ] || find dist -maxdepth 1 -type f -cnewer $begun -delete
touch $begun
# Between releases each commit's packages have a number of their own: else apt and rpm would not put one over another.
revision=1
commit=$(git rev-parse -q --verify HEAD 2>/dev/null) || commit=
[ "$(git rev-parse -q --verify "v$version^{commit}" 2>/dev/null)" = "$commit" ] ||
	revision+=+$(date --date="@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S)
# Files of another version would get checksums as if they belonged to this one.
find dist -maxdepth 1 -type f ! -path $begun \
	\( ! -name "*$version*" -o -name '*.[dr][ep][bm]' ! -name "*$version-$revision[_.]*" \) -delete

for file in scripts/dist/*.sh; do
	# shellcheck source=/dev/null
	. "$file"
done
for part in "${parts[@]}"; do
	case $part in
	deb | rpm | tarball)
		for architecture in "${architectures[@]}"; do
			"build_$part" "$architecture"
		done
		;;
	*) "build_$part" ;;
	esac
done
rm $begun
(cd dist && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%f\n' | sort | xargs -r sha256sum >SHA256SUMS)
say "done: $(cd dist && find . -maxdepth 1 -type f ! -name SHA256SUMS | wc -l) files and their SHA256SUMS in dist/"
