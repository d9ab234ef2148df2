# Two commands do everything on a machine with Python 3.11 and make: `make run`, `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: install apt screenshots run test test-browser test-long test-quiet lint types unit e2e bench bench-accept gate-table docs simulator-docs record-validation record-samples record-provoked gpu-sample golden clean
install: $(READY)

$(READY): pyproject.toml requirements-cpu.txt scripts/install_cpu.sh
	$(PYTHON) -m venv $(VENV)
	sh scripts/install_cpu.sh $(BIN)/python
	touch $@

# Debian packages: the browser that the tests of the page drive. They are skipped without it.
apt:
	command -v chromium > /dev/null || { apt-get update && apt-get install -y --no-install-recommends chromium; }

# A real recorded verl run on this machine's CPU, its analysis, and what to open next.
run: install
	$(BIN)/rlinsight run --profile examples/fully_async.yaml

# Real runs one after the other, the rest on two cores. The page is looked at where there is a
# Chromium (`make apt` installs it); without one its tests are skipped, and say so.
test: install lint types e2e
	$(BIN)/python -m pytest -n 2 -m "not e2e and not quiet and not long"

test-browser: install apt
	$(BIN)/python -m pytest -n 2 -m browser

# Real runs that take too long for every build: kill -9 of the other kinds of process, the other
# modes and the scenarios on emulated devices, tuning. About two hours.
test-long: install
	$(BIN)/python -m pytest -m long

# What a busy machine cannot run: submitting a job to a Ray cluster that has just started.
test-quiet: install
	$(BIN)/python -m pytest -m quiet

unit: install
	$(BIN)/python -m pytest -n 2 -m "not e2e and not quiet and not browser"

e2e: install
	$(BIN)/python -m pytest -m "e2e and not quiet and not long"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy does not follow editable installs that map folders, so it is shown the mapping as links.
TYPED := build/typed/rlinsight
types: install
	rm -rf build/typed && mkdir -p $(TYPED)
	ln -s $(CURDIR)/rlinsight/* $(CURDIR)/collectors $(CURDIR)/analyzers $(CURDIR)/webapp $(TYPED)/
	MYPYPATH=build/typed $(BIN)/mypy -p rlinsight

BENCH_FIGURES := build/bench
bench: install
	rm -rf $(BENCH_FIGURES)
	export BENCH_FIGURES=$(BENCH_FIGURES); missed=0; \
	for script in benchmarks/[!h]*.py; do $(BIN)/python $$script || missed=1; done; \
	$(BIN)/rlinsight check $(BENCH_FIGURES) --baseline benchmarks/baselines \
	  --config benchmarks/check.yaml && exit $$missed

# After a bench run whose figures are accepted: what `make bench` compares with from now on.
bench-accept: install
	$(BIN)/rlinsight baseline add $(BENCH_FIGURES) --to benchmarks/baselines

# How often the gate cries wolf and how often it misses: the table in docs/check.md.
gate-table: install
	$(BIN)/python benchmarks/gate.py --write docs/check.md

# docs/cli.md and the rules of docs/advisor.md, from the code.
docs: install
	$(BIN)/python scripts/cli_docs.py docs/cli.md
	$(BIN)/python scripts/advisor_docs.py docs/advisor.md

# The tables of docs/simulator.md: sample traces, settings on emulated devices, real runs on a CPU.
simulator-docs: install
	$(BIN)/python scripts/validate_simulator.py

# Runs with other settings on emulated devices, those that were not recorded yet: two minutes each.
record-validation: install
	$(BIN)/python benchmarks/validation/record.py

# The pictures of the README, from the sample traces.
screenshots: install
	$(BIN)/python scripts/screenshots.py docs/images

record-samples: install
	$(BIN)/python sample_traces/record.py
	$(MAKE) golden

# Runs with one deliberate fault each; see sample_traces/provoked.yaml.
record-provoked: install
	$(BIN)/python sample_traces/record.py provoked

# After a deliberate change of a definition: what the tests expect of the sample traces.
golden: install
	$(BIN)/python scripts/golden.py

# On a machine with two GPUs and `pip install '.[verl,nvidia]'` in $(PYTHON): docs/hardware.md.
GPU_RUNS ?= sync colocate_async fully_async_s0 fully_async separate_async
gpu-sample:
	. scripts/gpu/environment.sh && $(PYTHON) scripts/gpu/record.py $(GPU_RUNS)

clean:
	rm -rf $(VENV) build *.egg-info
