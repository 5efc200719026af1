# Part of scripts/dist-test.sh: `pip install` by an ordinary user of a system that has only Python.

declare -A python_of=([bookworm]=3.11 [trixie]=3.13)

test_wheel() { # SUITE
	local suite=$1 wheel dependencies before begun install first
	wheel=$(ls dist/brobust-*.whl) || refuse "there is no wheel in dist/; make dist builds it"
	fresh_root "$suite" python3-venv
	dependencies=$work/wheels-$suite
	.venv/bin/python -m pip download --quiet --disable-pip-version-check --dest "$dependencies" --only-binary=:all: \
		--python-version "${python_of[$suite]}" --platform manylinux_2_34_x86_64 --platform manylinux_2_28_x86_64 \
		--platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 "$wheel"
	cp -r "$dependencies" "$root/wheels"
	rm "$dependencies/${wheel##*/}"
	before=$(files)

	inside stranger python3 -m venv new
	begun=$EPOCHREALTIME
	inside stranger new/bin/pip install --quiet --no-index --find-links /wheels --no-cache-dir brobust
	install=$(since "$begun")
	begun=$EPOCHREALTIME
	inside stranger new/bin/brobust demo --backend virtual >"$work/said" || fail "demo: $(cat "$work/said")"
	first=$(since "$begun")
	grep -q 'median: throughput at the receiver' "$work/said" || fail "demo has drawn nothing: $(cat "$work/said")"

	inside stranger new/bin/brobust --version >"$work/said"
	grep -q virtual-6.1 "$work/said" || fail "--version does not name the kernels: $(cat "$work/said")"
	inside stranger new/bin/brobust run --share 0.5 --cc bbr --duration 1s --out one >/dev/null
	inside stranger new/bin/brobust run --share 0.5 --cc bbr --duration 1s --kernel virtual-6.1 --out two >/dev/null
	inside stranger new/bin/brobust watch --once >/dev/null
	inside stranger new/bin/brobust docs tutorial >"$work/said"
	grep -q tutorial.html "$work/said" || fail "docs: $(cat "$work/said")"
	# It says what a machine without VMs lacks, and ends with 2 for that.
	inside stranger new/bin/brobust doctor >"$work/said" || [ $? -eq 2 ]
	grep -q 'virtual-6.12' "$work/said" || fail "doctor does not list the kernel: $(cat "$work/said")"
	inside stranger new/bin/brobust report demo 2>"$work/said" && fail "report needs the extra study, and did not say so"
	grep -q "pip install 'brobust\[study\]'" "$work/said" || fail "report: $(cat "$work/said")"

	row wheel "$suite" "$(megabytes "$wheel")" "$(megabytes "$(echo "$root"/home/stranger/new/lib/python3.*/site-packages/brobust)")" \
		"$install s" "$first s" "$(find "$dependencies" -name '*.whl' | wc -l) packages, $(megabytes "$dependencies")"

	inside stranger new/bin/pip uninstall --quiet --yes brobust
	find "$root/home/stranger/new" -name '*brobust*' >"$work/said"
	[ ! -s "$work/said" ] || fail "pip uninstall leaves $(cat "$work/said")"
	rm -r "$root/home/stranger/new" "$root"/home/stranger/{demo,one,two}
	files | diff <(echo "$before") - >"$work/said" || fail "after removal: $(cat "$work/said")"
}
