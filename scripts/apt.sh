#!/usr/bin/env bash
# Makes a directory whose pool/ has .deb files, of any versions, a repository for apt:
#
#   scripts/apt.sh DIRECTORY [KEY]      KEY is the gpg key that signs; without it apt refuses the repository
#
# The same packages give the same files, but for the signatures; SOURCE_DATE_EPOCH is the repository's date.
set -euo pipefail

refuse() { printf 'apt: %s\n' "$*" >&2; exit 2; }

[ $# -ge 1 ] && [ $# -le 2 ] || refuse "give a directory with pool/*.deb in it, and the key that signs"
key=${2:-}
cd "$1" 2>/dev/null || refuse "$1 is no directory; give one with pool/*.deb in it"
compgen -G 'pool/*.deb' >/dev/null || refuse "$1/pool has no .deb; put those of this and of earlier versions there"
command -v apt-ftparchive >/dev/null || refuse "apt-ftparchive is missing; apt-get install apt-utils"
[ -z "$key" ] || gpg --batch --list-secret-keys "$key" >/dev/null 2>&1 ||
	refuse "gpg has no secret key $key; gpg --list-secret-keys lists those that it has"

rm -rf dists
architectures=$(for package in pool/*.deb; do dpkg-deb --field "$package" Architecture; done | sort -u | paste -sd' ')
for architecture in $architectures; do
	list=dists/stable/main/binary-$architecture
	mkdir -p "$list"
	apt-ftparchive --arch "$architecture" packages pool >"$list/Packages"
	gzip -9nk "$list/Packages"
	xz -9k "$list/Packages"
done
apt-ftparchive -o APT::FTPArchive::Release::Origin=brobust -o APT::FTPArchive::Release::Label=brobust \
	-o APT::FTPArchive::Release::Suite=stable -o APT::FTPArchive::Release::Codename=stable \
	-o APT::FTPArchive::Release::Date="$(LC_ALL=C date -u --rfc-email --date="@${SOURCE_DATE_EPOCH:-$(date +%s)}")" \
	-o APT::FTPArchive::Release::Components=main -o APT::FTPArchive::Release::Architectures="$architectures" \
	release dists/stable >Release
mv Release dists/stable/
[ -n "$key" ] || exit 0
gpg --batch --yes --local-user "$key" --digest-algo SHA512 --clearsign --output dists/stable/InRelease dists/stable/Release
gpg --batch --yes --local-user "$key" --digest-algo SHA512 --armor --detach-sign --output dists/stable/Release.gpg \
	dists/stable/Release
gpg --batch --yes --armor --export --output brobust.asc "$key"
