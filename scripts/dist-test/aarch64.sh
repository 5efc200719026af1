# Part of scripts/dist-test.sh: brobust-host for aarch64 on Debian's kernels for arm64, in QEMU without KVM: its emulation
# is slow, so the times are those of a slow machine. With DIST_TEST_OUT=DIR they are written to DIR/results.csv, too.
# The guest's root is its initramfs, which nothing has configured; what is installed in it are the packages themselves
# (scripts/dist-test/aarch64.init).

aarch64_kernels=(linux-image-cloud-arm64 linux-image-6.12-cloud-arm64) # Linux 6.1 and 6.12 of bookworm
aarch64_seconds=5400 # for one kernel, on a machine that is busy with other things
aarch64_controls="bbr_steady bbr_robust brb_bbr1_steady brb_bbr3_steady"

test_aarch64() { # SUITE, of which only the first has these kernels
	local kept package begun version release wrong=
	[ "$1" = "${suites[0]}" ] || return 0
	command -v qemu-system-aarch64 >/dev/null || refuse "qemu-system-aarch64 is missing; apt-get install qemu-system-arm"
	kept=${XDG_CACHE_HOME:-$HOME/.cache}/brobust-dist-test/aarch64
	mkdir -p "$kept"
	if [ ! -s "$kept/root.tar" ]; then
		say "fetching a system for arm64"
		mmdebstrap --quiet --variant=extract --architectures=arm64 \
			--include=bash,coreutils,dpkg,rpm,sed,grep,mawk,findutils,diffutils,tar,gzip,iproute2,kmod,util-linux,busybox-static,procps,base-files,libc-bin \
			bookworm "$kept/root.new.tar"
		mv "$kept/root.new.tar" "$kept/root.tar"
	fi
	fetch_kernels_of_arm64 "$kept"
	version=$(scripts/version.sh)
	for package in "$kept"/kernels/*/; do
		package=${package%/}
		release=$(basename "$package"/boot/vmlinuz-* | sed 's/vmlinuz-//; s/-cloud-arm64//')
		begun=$EPOCHREALTIME
		guest_of_arm64 "$kept" "$package" "$version"
		timeout "$aarch64_seconds" qemu-system-aarch64 -machine virt -cpu cortex-a72 -smp 2 -m 1536 -nographic -no-reboot -nic none \
			-kernel "$package"/boot/vmlinuz-* -initrd "$work/aarch64.cpio" \
			-append "console=ttyAMA0 rdinit=/init quiet panic=-1" >"$work/console" 2>&1 || true
		sed -i 's/\r//g' "$work/console"
		grep -aq '^end of the tests' "$work/console" ||
			printf 'wrong    %s s  come to the end: %s\n' "$(since "$begun")" "$(tail -n 1 "$work/console")" >>"$work/console"
		grep -aE '^(kernel|ok|refused|wrong) ' "$work/console" >&2 || true
		! grep -aqE '^wrong ' "$work/console" || wrong+=" $release"
		sed -nE "s/^(ok|refused|wrong) +([0-9.]+) s  ([^:]*)(: (.*))?$/$(echo "$release" | cut -d. -f1,2)\t\1\t\2 s\t\3\t\5/p" \
			"$work/console" >>"$work/results"
		row aarch64 "$release" "$(megabytes "$(released 'brobust-host_*_arm64.deb')")" - - "$(since "$begun") s" \
			"$(grep -acE '^ok ' "$work/console") ok, $(grep -acE '^refused ' "$work/console") refused"
	done
	[ -z "${DIST_TEST_OUT:-}" ] || results_of_arm64 <"$work/results" >"$DIST_TEST_OUT/results.csv"
	[ -z "$wrong" ] || fail "aarch64:$wrong: see above"
}

# A line for everything that was tried, a column for each kernel: how long it took, or that it was refused, and details.
results_of_arm64() {
	awk -F'\t' '
		!($1 in kernels) { kernels[$1]; heading = heading "," $1 }
		!($4 in whats) { whats[$4]; order[++n] = $4 }
		{ said[$4, $1] = ($2 == "ok" ? $3 : $2) ($5 == "" ? "" : ": " $5); gsub(/"/, "\"\"", said[$4, $1]) }
		END {
			print "what" heading
			count = split(substr(heading, 2), columns, ",")
			for (i = 1; i <= n; i++) {
				line = "\"" order[i] "\""
				for (j = 1; j <= count; j++) line = line ",\"" said[order[i], columns[j]] "\""
				print line
			}
		}'
}

fetch_kernels_of_arm64() { # DIRECTORY: one directory for each in its kernels/
	local state=$work/apt-of-arm64 name package
	[ ! -e "$1/kernels/is-complete" ] || return 0
	rm -rf "$1/kernels"
	mkdir -p "$1/kernels"
	say "fetching kernels for arm64"
	apt_of "$state" arm64 apt-get update
	for name in "${aarch64_kernels[@]}"; do
		package=$(apt_of "$state" arm64 apt-cache depends "$name" | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -1)
		(cd "$state" && apt_of "$state" arm64 apt-get download "$package")
		dpkg-deb --extract "$state/$package"_*.deb "$1/kernels/$package"
	done
	touch "$1/kernels/is-complete"
}

guest_of_arm64() { # DIRECTORY KERNEL VERSION: makes $work/aarch64.cpio
	local root=$work/aarch64 release name
	rm -rf "$root"
	mkdir -p "$root"
	tar -C "$root" -xf "$1/root.tar" --exclude='./dev/*'
	release=$(basename "$2"/boot/vmlinuz-*)
	release=${release#vmlinuz-}
	mkdir -p "$root/lib/modules/$release"
	find "$2/lib/modules/$release" -name 'modules.*' -exec cp -t "$root/lib/modules/$release" {} +
	for name in tcp_bbr inet_diag tcp_diag sch_fq; do
		(cd "$2" && find "lib/modules/$release" -name "$name.ko*" -exec cp --parents -t "$root" {} +)
	done
	depmod --basedir "$root" "$release"
	mkdir -p "$root/packages" "$root"/{proc,sys,dev,run,tmp,root,usr/local,var/lib/dpkg,var/lib/rpm}
	touch "$root/var/lib/dpkg/status"
	# What their packages' scripts would have made.
	ln -sf bash "$root/bin/sh"
	ln -sf mawk "$root/usr/bin/awk"
	cp "$(released 'brobust-host_*_arm64.deb')" "$root/packages/package.deb"
	cp "$(released 'brobust-host-*.aarch64.rpm')" "$root/packages/package.rpm"
	cp "$(released 'brobust-host-*-linux-aarch64.tar.gz')" "$root/packages/package.tar.gz"
	sed "2i VERSION='$3' CONTROLS='$aarch64_controls'" scripts/dist-test/aarch64.init >"$root/init"
	chmod +x "$root/init"
	(cd "$root" && find . -print0 | cpio --null --create --format=newc --quiet) >"$work/aarch64.cpio"
	rm -rf "$root"
}
