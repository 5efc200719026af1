# For the scripts beside it that do several things, each of which has a name; and apt for other machines than this one.

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

# What it says is in English, and can be read by a script.
apt_of() { # DIRECTORY "ARCHITECTURE..." PROGRAM ARGUMENT...: apt with lists of its own there, and with nothing installed
	local architectures
	read -ra architectures <<<"$2"
	mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
	LC_ALL=C "$3" -qq -o APT::Architecture="${architectures[0]}" "${architectures[@]/#/-oAPT::Architectures::=}" \
		-o Dir::State="$1" -o Dir::State::status=/dev/null -o Dir::Cache="$1/cache" -o APT::Sandbox::User=root "${@:4}"
}
