#!/usr/bin/env bash
# Makes of what is in dist/ what a maintainer uploads, into publish/, checks it, and stops before the first upload:
#
#   scripts/publish.sh [--key KEY]      KEY is the gpg key that signs; without it all is made, and nothing signed
#
#   publish/pypi        the wheel
#   publish/apt         a repository for apt; .deb files of earlier versions that are in its pool/ stay
#   publish/image       the container image
#   publish/release     what stands beside the tag: packages, tarballs, SBOMs, checksums, notes
#
# It ends with the commands that upload them. Exit status 1 if something is wrong or missing, and 2 for a mistake. It sends
# nothing anywhere.
set -uo pipefail
cd "$(dirname "$0")/.."

refuse() { printf 'publish: %s\n' "$*" >&2; exit 2; }

key=
while [ $# -gt 0 ]; do
	case $1 in
	--key) key=${2:-}; [ -n "$key" ] || refuse "--key needs the id of a gpg key"; shift 2 ;;
	*) refuse "$1: no such option; there is --key KEY" ;;
	esac
done
version=$(scripts/version.sh)
[ -z "$key" ] || gpg --batch --list-secret-keys "$key" >/dev/null 2>&1 ||
	refuse "gpg has no secret key $key; gpg --list-secret-keys lists those that it has"
scripts/release.sh checksums >/dev/null || refuse "dist/ is not what \`make dist\` builds of $version"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
wrong() { printf '  %s\n' "$*" >&2; return 1; }
. scripts/parts.sh

of_tag() {
	[ -z "$(git status --porcelain)" ] || wrong "there are uncommitted changes" || return 1
	[ "$(git rev-parse -q --verify "v$version^{commit}")" = "$(git rev-parse HEAD)" ] ||
		wrong "HEAD is not the tag v$version: git tag -s v$version -m 'brobust $version', and make dist again"
}

of_pypi() {
	local wheel
	mkdir -p publish/pypi
	rm -f publish/pypi/*
	cp dist/brobust-"$version"-*.whl publish/pypi/ || return 1
	UV_PROJECT_ENVIRONMENT=.venv .venv/bin/uv sync --quiet --locked --inexact --only-group release || return 1
	for wheel in publish/pypi/*.whl; do
		.venv/bin/python scripts/dist/check_wheel.py "$wheel" "$version" || return 1
	done
	.venv/bin/twine check --strict publish/pypi/* >&2
}

of_apt() {
	mkdir -p publish/apt/pool
	cp dist/brobust-host_"$version"-*.deb publish/apt/pool/ && scripts/apt.sh publish/apt ${key:+"$key"}
}

of_image() {
	mkdir -p publish/image
	rm -f publish/image/*
	cp "dist/brobust-host-$version-oci.tar" publish/image/
	python3 scripts/dist/image.py digest "publish/image/brobust-host-$version-oci.tar" >publish/image/digest
}

of_release() {
	mkdir -p publish/release
	rm -f publish/release/*
	find dist -maxdepth 1 -type f ! -name '*-oci.tar' -exec cp -t publish/release {} +
	# The changelog's section, without its heading.
	awk -v heading="## $version" '/^## / { on = $0 == heading; next } on' CHANGELOG.md >publish/release/notes.md
	grep -q . publish/release/notes.md || wrong "CHANGELOG.md has no section $version"
}

of_signatures() {
	if [ -z "$key" ]; then
		wrong "nothing is signed, neither the repository for apt nor SHA256SUMS: scripts/publish.sh --key KEY"
		return 1
	fi
	gpg --batch --yes --local-user "$key" --armor --detach-sign publish/release/SHA256SUMS &&
		gpg --batch --verify publish/release/SHA256SUMS.asc publish/release/SHA256SUMS 2>/dev/null &&
		gpg --batch --verify publish/apt/dists/stable/InRelease 2>/dev/null
}

do_each of_ "publish: $version is not ready to be uploaded" tag pypi apt image release signatures
cat <<END
publish: $version is ready, and nothing was uploaded. What you do now, in this order (docs/releasing.md):
  git push origin v$version
  .venv/bin/twine upload publish/pypi/*
  rsync -a --delete-after publish/apt/ HOST:PATH          # pool/ first, if your mirror is not atomic
  skopeo copy --all --preserve-digests oci-archive:publish/image/brobust-host-$version-oci.tar docker://REGISTRY/brobust-host:$version
    its digest: $(cat publish/image/digest)
  publish/release: beside the release of the tag, with notes.md as its text
END
