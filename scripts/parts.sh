# For the scripts beside it that do several things, each of which has a name.

check_names() { # KIND "NAME..." GIVEN...: refuses what is none of these names
	local name
	for name in "${@:3}"; do
		[[ " $2 " = *" $name "* ]] || refuse "$name: no such $1; the $1s are $2"
	done
}

do_each() { # PREFIX "WHAT IS NOT TRUE" NAME...: does each, also after one that failed; ends with status 1 if one has
	local name failed=()
	for name in "${@:3}"; do
		if "$1$name"; then
			printf 'ok     %s\n' "$name"
		else
			printf 'wrong  %s\n' "$name"
			failed+=("$name")
		fi
	done
	[ ${#failed[@]} -eq 0 ] || { printf '%s: %s\n' "$2" "${failed[*]}"; exit 1; }
}
