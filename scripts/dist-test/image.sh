# Part of scripts/dist-test.sh: the container image, as a container engine reads and runs it.

test_image() { # SUITE, which an image does not depend on
	local archive begun install first
	[ "$1" = "${suites[0]}" ] || return 0
	archive=$(released 'brobust-host-*-oci.tar')
	rm -rf "$work/image"
	mkdir "$work/image"
	begun=$EPOCHREALTIME
	skopeo copy --quiet "oci-archive:$archive" "oci:$work/image/layout:released"
	umoci unpack --image "$work/image/layout:released" "$work/image/bundle" >/dev/null 2>&1
	install=$(since "$begun")
	run_image --version >"$work/said" 2>&1 || fail "image: $(cat "$work/said")"
	grep -q '^brobust [0-9.]*$' "$work/said" || fail "image: --version says $(cat "$work/said")"
	begun=$EPOCHREALTIME
	run_image watch --once --interval 200ms --window 1s >"$work/said" 2>&1 ||
		fail "image: watch --once: $(cat "$work/said")"
	first=$(since "$begun")
	skopeo copy --quiet --override-arch arm64 "oci-archive:$archive" "oci:$work/image/layout:arm64"
	umoci unpack --image "$work/image/layout:arm64" "$work/image/arm64" >/dev/null 2>&1
	LC_ALL=C readelf --file-header "$work/image/arm64/rootfs/usr/bin/brobust" | grep -q 'Machine: *AArch64$' ||
		fail "image: that of arm64 has a program for another architecture"
	row image any "$(megabytes "$archive")" "$(megabytes "$work/image/bundle/rootfs")" "$install s" "$first s" none
}

run_image() { # ARGUMENT...: runs its entry point as its user says, in namespaces of its own
	local config=$work/image/bundle/config.json
	python3 - "$config" "$@" <<-'PYTHON'
		import json, pathlib, sys

		path = pathlib.Path(sys.argv[1])
		config = json.loads(path.read_text())
		process = config["process"]
		assert process["user"] == {"uid": 65534, "gid": 65534}, process["user"]
		process["terminal"] = False
		process["args"] = [process["args"][0], *sys.argv[2:]]
		path.write_text(json.dumps(config))
	PYTHON
	runc run --bundle "${config%/*}" "brobust-$$"
}
