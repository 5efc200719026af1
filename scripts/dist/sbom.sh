# Part of scripts/dist.sh: what the program for operators and the wheel consist of.

build_sbom() {
	local python architecture
	for architecture in "${architectures[@]}"; do
		[ "$architecture" != aarch64 ] || prepare_aarch64
		python3 scripts/dist/components.py sbom --architecture "$architecture" brobust-host "$version" brobust-command \
			>"dist/brobust-host-$version-$architecture.cdx.json"
	done
	[ -e dist/brobust-"$version"-*.whl ] || { say "no wheel in dist/, so no SBOM of one"; return; }
	python=$(mktemp)
	# uv itself says which Python packages `pip install brobust` brings.
	.venv/bin/uv export --quiet --preview --locked --no-dev --no-emit-project --format cyclonedx1.5 \
		--output-file "$python" >/dev/null
	python3 scripts/dist/components.py sbom brobust "$version" --python "$python" \
		--wheel dist/brobust-"$version"-*.whl "${wheel_programs[@]}" \
		>"dist/brobust-$version.cdx.json"
	rm "$python"
	say "dist/brobust-$version.cdx.json, dist/brobust-host-$version-ARCHITECTURE.cdx.json"
}
