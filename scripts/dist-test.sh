#!/usr/bin/env bash
# Installs what `make dist` has built as a user would, in file systems with nothing but a distribution's minimal packages
# and without a network; runs the first commands, removes it, and looks for what is left. Ends with a table.
#
#   scripts/dist-test.sh [PART...]      the parts are the files of scripts/dist-test/; default: all of them
#
# Needs root, and the network for the minimal systems, which ~/.cache/brobust-dist-test keeps, and for the wheel's
# dependencies. Kernel and CPU are this host's: what is tried is packages and files.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'dist-test: %s\n' "$*" >&2; }
refuse() { say "$*"; exit 2; }
fail() { say "$*"; exit 1; }
. scripts/parts.sh

[ "$(id -u)" -eq 0 ] || refuse "file systems of other distributions are made and entered by root; sudo make dist-test"
scripts/setup.sh dist-test

suites=(bookworm trixie)
parts=()
for file in scripts/dist-test/*.sh; do
	# shellcheck source=/dev/null
	. "$file"
	file=${file##*/}
	parts+=("${file%.sh}")
done
[ $# -gt 0 ] || set -- "${parts[@]}"
check_names part "${parts[*]}" "$@"

work=$(mktemp -d)
root=$work/root
leave() { # what was mounted there must not be removed with it
	umount -l "$root/proc" "$root/dev/shm" "$root/dev" 2>/dev/null || true
	rm -rf --one-file-system "$1"
}
trap 'leave "$work"' EXIT

fresh_root() { # SUITE [PACKAGE...]: $root becomes the suite's minimal system with these packages and a user, `stranger`
	local suite=$1 kept packages
	shift
	packages=$(IFS=,; echo "$*")
	kept=${XDG_CACHE_HOME:-$HOME/.cache}/brobust-dist-test/$suite${packages:+-$packages}.tar
	if [ ! -s "$kept" ]; then
		say "fetching a minimal $suite${packages:+ with $packages}"
		mkdir -p "${kept%/*}"
		mmdebstrap --quiet --variant=minbase ${packages:+--include="$packages"} "$suite" "$kept.new.tar"
		mv "$kept.new.tar" "$kept"
	fi
	leave "$root"
	mkdir "$root"
	tar -C "$root" -xf "$kept"
	mount -t proc proc "$root/proc"
	mount -t tmpfs tmpfs "$root/dev"
	cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$root/dev/"
	mkdir "$root/dev/shm"
	mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
	chroot "$root" useradd --create-home stranger
}

inside() { # USER COMMAND...: runs a command in $root, in the user's home, with no network but loopback
	local home=/root
	[ "$1" = root ] || home=/home/$1
	unshare --net -- sh -c 'ip link set lo up && exec "$@"' sh chroot --userspec="$1" "$root" env -i \
		HOME="$home" USER="$1" TERM=dumb LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		bash -c 'cd && exec "$@"' bash "${@:2}"
}

files() { # what there is in $root, but for what differs between any two runs
	(cd "$root" && find . -xdev ! -path './tmp/*' ! -path './var/log/*' ! -path './var/cache/*' ! -path './var/lib/dpkg/*' \
		! -path './run/*' | sort)
}

since() { # EPOCHREALTIME: the seconds since then
	awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $1 }"
}

megabytes() { # FILE_OR_DIRECTORY
	du -s --apparent-size -B 100000 "$1" | awk '{ printf "%.1f MB", $1 / 10 }'
}

row() { # printed at the end
	printf '%-10s %-10s %10s %10s %10s %12s  %s\n' "$@" >>"$work/table"
}
row what on download installed install "first result" dependencies
for part in "$@"; do
	for suite in "${suites[@]}"; do
		"test_$part" "$suite"
		say "$part on $suite: ok"
	done
done
cat "$work/table"
