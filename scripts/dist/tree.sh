# Part of scripts/dist.sh: the files that deb, rpm and tarball have in common.

# Where the trees lie before they are packed.
trees=target/dist

stage_tree() { # ARCHITECTURE TREE PREFIX DIRECTORY_OF_ZSH: fills TREE, which becomes PREFIX where it is installed
	local architecture=$1 under=$2 prefix=$3 zsh=$4 generated=$trees/generated page
	# The pages are the same for every architecture, and this machine can ask the program for its own.
	build_binary_x86_64
	"build_binary_$architecture"
	rm -rf "$generated"
	"$(program_of x86_64)" generate "$generated"
	install -D -m 755 "$(program_of "$architecture")" "$under/bin/brobust"
	for page in "$generated"/man1/*.1; do
		install -D -m 644 "$page" "$under/share/man/man1/${page##*/}"
	done
	find "$under/share/man" -type f -exec gzip -9n {} +
	install -D -m 644 "$generated/completions/brobust.bash" "$under/share/bash-completion/completions/brobust"
	install -D -m 644 "$generated/completions/_brobust" "$under/$zsh/_brobust"
	install -D -m 644 "$generated/completions/brobust.fish" "$under/share/fish/vendor_completions.d/brobust.fish"
	mkdir -p "$under/lib/systemd/system"
	sed "s|/usr/bin/|$prefix/bin/|" packaging/brobust-watch.service >"$under/lib/systemd/system/brobust-watch.service"
	install -D -m 644 packaging/brobust-watch.json "$under/share/brobust/brobust-watch.json"
	install -D -m 644 -t "$under/share/brobust/kubernetes" packaging/kubernetes/*.yaml
	install_rules "$under" "$prefix"
	install -D -m 644 CHANGELOG.md "$under/share/doc/brobust-host/changelog"
	gzip -9n "$under/share/doc/brobust-host/changelog"
	python3 scripts/dist/components.py notices --architecture "$architecture" brobust-command >"$trees/notices"
	install -m 644 "$trees/notices" "$under/share/doc/brobust-host/third-party-notices"
	gzip -9n "$under/share/doc/brobust-host/third-party-notices"
}

# The runbook of the alerts, and the pages to which it leads.
runbook_pages=(docs/watch-service.md docs/for-senders.md SECURITY.md)

# The links of alerts lead to the site, if a release has one, or to the page that is installed.
install_rules() { # TREE PREFIX
	local doc=share/doc/brobust-host site runbook page file
	site=$(sed -n '/^\[workspace.metadata.release\]/,/^$/s/^documentation = "\(.*\)"$/\1/p' Cargo.toml)
	runbook=${site:+${site%/}/watch-service.html}
	runbook=${runbook:-file://$2/$doc/watch-service.md}
	mkdir -p "$1/$doc" "$1/share/brobust/prometheus"
	for page in "${runbook_pages[@]}"; do
		sed 's|](\.\./SECURITY\.md)|](SECURITY.md)|g' "$page" >"$1/$doc/${page##*/}"
	done
	for file in packaging/prometheus/*.yaml; do
		sed "s|https://brobust\.invalid/watch-service\.html|$runbook|" "$file" >"$1/share/brobust/prometheus/${file##*/}"
	done
}

date_tree() { # ROOT: the time of every file is that of the commit; a checkout below a directory with setgid gives none
	find "$1" -type d -exec chmod g-s {} +
	find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}
