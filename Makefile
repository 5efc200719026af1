# Two commands are all a newcomer needs: `make demo` and `make test`. Both install what they need.
.DEFAULT_GOAL := help
.PHONY: help setup demo test tools lint unit compiles virtual vm format clean

help:
	@echo "make demo    take a sender's CPU away, measure cubic / bbr / bbr_robust, draw the result: with real kernels in"
	@echo "             virtual time (seconds), then with real VMs (about 5 minutes)"
	@echo "make test    install what is needed, run every test"
	@echo "make setup   install what is needed, build the kernel for virtual time, fetch those for VMs,"
	@echo "             leave the command at .venv/bin/brobust"
	@echo "make lint    formatters, linters and type checker; make format mends what they can"

setup:
	@scripts/setup.sh

# Virtual time first: its figure is there before what VMs need is fetched.
demo:
	@scripts/setup.sh virtual
	.venv/bin/brobust demo --backend virtual
	@if [ "$$(id -u)" -eq 0 ]; then \
		scripts/setup.sh vm && .venv/bin/brobust demo --backend vm; \
	else echo "the same on real VMs needs root: make setup, then sudo .venv/bin/brobust demo --backend vm"; fi

test: tools lint unit compiles virtual vm

tools:
	@scripts/setup.sh virtual vm trees lint browser

# A file's tests stay on one CPU, one after the other: some change what the host has only one of.
SIDE_BY_SIDE = -n auto --dist loadfile

# Fast and without a VM; the kernel-side parts want root and say so when they are skipped.
unit: setup
	cargo test --workspace --exclude brobust-python --quiet
	@if [ "$$(id -u)" = 0 ]; then cargo test -p brobust-contention --test root --quiet -- --ignored; \
	else echo "unit: not root, the tests of drivers and recorders on real threads were left out"; fi
	.venv/bin/pytest $(SIDE_BY_SIDE) -m "not vm and not virtual and not compiles"

# Kernel modules and repaired trees through the compiler.
compiles: setup
	.venv/bin/pytest $(SIDE_BY_SIDE) -m "compiles and not vm and not virtual"

# Real kernels in virtual time: deterministic, about two minutes.
virtual: setup
	.venv/bin/pytest $(SIDE_BY_SIDE) -m "virtual and not vm"

# Real VMs, about nine minutes: last, and alone on the machine.
vm: setup
	.venv/bin/pytest -m vm

lint:
	@scripts/setup.sh virtual lint
# Distributions package cargo without its linters: then only those are left out, and it is said.
	@if cargo fmt --version >/dev/null 2>&1; then cargo fmt --all --check; else echo "lint: no rustfmt, Rust format not checked"; fi
	@if cargo clippy --version >/dev/null 2>&1; then \
		cargo clippy --workspace --all-targets --quiet -- -D warnings; \
	else echo "lint: no clippy, Rust not linted"; fi
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/mypy --no-error-summary benchmarks/*.py
	git ls-files '*.c' '*.h' '*.cc' | xargs -r clang-format --dry-run -Werror

format:
	@scripts/setup.sh virtual lint
	cargo fmt --all
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
	git ls-files '*.c' '*.h' '*.cc' | xargs -r clang-format -i

clean:
	rm -rf target .venv python/brobust/guests/bin python/brobust/_core*.so
