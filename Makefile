# A newcomer needs only two commands: `make demo` and `make test`. Both install what they need.
.DEFAULT_GOAL := help
# Some machines tell Python to keep nothing of what it compiles. Then each command of the tests compiles all again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup demo test tools code docs lint rust unit compiles virtual vm audit format evidence dist dist-test clean

help:
	@echo "make demo      take a sender's CPU away, measure cubic / bbr / bbr_steady, draw the result: with real kernels in"
	@echo "               virtual time (seconds), then with real VMs (about 5 minutes)"
	@echo "make test      install what is needed, run every test"
	@echo "make setup     install what is needed, build the kernel for virtual time, fetch those for VMs;"
	@echo "               the command is then at .venv/bin/brobust"
	@echo "make unit      the Python tests without VMs and kernels; make rust, compiles, virtual, vm: the other tests"
	@echo "make docs      the documentation as a site; \`brobust docs\` opens it"
	@echo "make lint      check format, style and types; make format corrects the format"
	@echo "make evidence  measure again which of the documentation's numbers rest on what has changed: hours; ARGS=--stale"
	@echo "               only says which and how long that takes, --confirm repeats eight runs of each, --only NAME makes one"
	@echo "make audit     look up known vulnerabilities of everything in the lock files; needs the network"
	@echo "make dist      build what is released, into dist/: wheel, deb, rpm, tarball, container image, SBOM, checksums"
	@echo "make dist-test install each of them in file systems with nothing but a distribution's minimal packages"
	@echo "make clean     remove what was built"

setup:
	@$(SET_UP) scripts/setup.sh

# Virtual time first: its figure is there before anything for VMs is fetched.
demo:
	@scripts/setup.sh virtual
	.venv/bin/brobust demo --backend virtual
	@if [ "$$(id -u)" -eq 0 ]; then \
		scripts/setup.sh vm && .venv/bin/brobust demo --backend vm; \
	else echo "the same on real VMs needs root: make setup, then sudo .venv/bin/brobust demo --backend vm"; fi

test: tools code unit virtual vm
# `tools` has installed what the stages need; each would take seconds to look for it again.
test: export SET_UP = :

tools:
	@echo "== $@"
	@scripts/setup.sh virtual vm lab trees lint browser docs

# tests/conftest.py says which tests run one after the other on one CPU: some change things that the host has only once.
# The files are in its order, instead of those with the most tests first.
WORKERS = logical
SIDE_BY_SIDE = -n $(WORKERS) --no-loadscope-reorder

# Lint and the tests that compile run beside the Rust tests, which mostly wait. What the Rust tests print comes last. A
# shell starts in the background what ignores Ctrl-C: env makes it listen.
code:
	@echo "== $@"
	@mkdir -p build; env --default-signal=INT,QUIT $(MAKE) --no-print-directory rust >build/rust-tests.log 2>&1 & \
	$(MAKE) --no-print-directory lint compiles; status=$$?; \
	wait $$! || status=1; cat build/rust-tests.log; exit $$status

# The inputs that are drawn are the same each time, as those of Python; `PROPTEST_CASES=100000 cargo test` draws others.
RUST_TESTS = PROPTEST_RNG_SEED=1 cargo test --workspace --exclude brobust-python --quiet --locked

# Rust tests that need root are ignored without it; those that need support which the kernel lacks print "skipped" and
# the reason, which --show-output shows.
rust: setup
	@if [ "$$(id -u)" -eq 0 ]; then $(RUST_TESTS) -- --include-ignored --show-output; \
	else $(RUST_TESTS) -- --show-output && echo "rust: not root, so Rust tests that need root were ignored"; fi
	@scripts/rust_deps.sh keep

# Fast, without kernels and VMs. The worker that has the tests which change the host mostly waits: one more fits.
unit: WORKERS = $$(($$(nproc) + 1))
unit: setup
	@echo "== $@"
	.venv/bin/pytest $(SIDE_BY_SIDE) -m "not vm and not virtual and not compiles"

# Compile kernel modules and repaired kernel trees.
compiles: setup
	.venv/bin/pytest $(SIDE_BY_SIDE) -m "compiles and not vm and not virtual"

# Real kernels in virtual time: deterministic, about three minutes.
virtual: setup
	@echo "== $@"
	.venv/bin/pytest $(SIDE_BY_SIDE) -m "virtual and not vm"

# Real VMs, about ten minutes: the last, with nothing else running on the machine.
vm: setup
	@echo "== $@"
	.venv/bin/pytest -m vm

docs:
	@scripts/setup.sh docs
	.venv/bin/python scripts/site/build.py

lint: MYPY_CACHE = --cache-dir $${XDG_CACHE_HOME:-$$HOME/.cache}/brobust/mypy
lint:
	@$(SET_UP) scripts/setup.sh virtual lint
# Distributions package cargo without its linters: then only these are left out, with a message.
	@if cargo fmt --version >/dev/null 2>&1; then cargo fmt --all --check; else echo "lint: no rustfmt, Rust format not checked"; fi
	@if cargo clippy --version >/dev/null 2>&1; then \
		cargo clippy --workspace --all-targets --quiet --locked -- -D warnings; \
	else echo "lint: no clippy, Rust not linted"; fi
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
# mypy knows by a file's content whether it has checked it, so what it found in one clone holds in the next.
	.venv/bin/mypy $(MYPY_CACHE)
	.venv/bin/mypy $(MYPY_CACHE) --no-error-summary benchmarks/*.py
# Which room may import which: pyproject.toml, importlinter.
	.venv/bin/lint-imports --no-cache --no-logo
	git ls-files '*.c' '*.h' '*.cc' | xargs -r clang-format --dry-run -Werror
# Numbers of the documentation that were changed by hand, in a page or in the data.
	.venv/bin/python scripts/evidence.py --check

# Not part of `make test`: known vulnerabilities change without any change of ours.
audit: setup
	@scripts/audit.sh

format:
	@scripts/setup.sh virtual lint
	cargo fmt --all
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
	.venv/bin/python scripts/write_field_docs.py
	.venv/bin/python scripts/evidence.py
	git ls-files '*.c' '*.h' '*.cc' | xargs -r clang-format -i

# What is stale of the documentation's numbers, measured again: CONTRIBUTING.md, "Numbers".
ARGS =
evidence:
	@scripts/setup.sh virtual
	.venv/bin/python scripts/evidence.py --make $(ARGS)

dist:
	@scripts/dist.sh

# Needs root, and the network for the minimal systems; what is tried in them has no network.
dist-test:
	@scripts/dist-test.sh

clean:
# First what says that the rest is whole: this may be killed, too. Behind a link it is another checkout's.
	@[ -L target ] || rm -f target/aarch64/is-complete
	@[ -L .venv ] || rm -f .venv/bin/python
	rm -rf target build .venv python/brobust/_core*.so
	rm -rf $(addprefix python/brobust/,sources bin virtual/bin kernels/bin site)
