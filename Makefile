# Two commands do everything on a machine with Python 3.11 and make: `make run`, `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: install run test test-quiet lint types unit e2e bench docs record-samples clean
install: $(READY)

$(READY): pyproject.toml requirements-cpu.txt scripts/install_cpu.sh
	$(PYTHON) -m venv $(VENV)
	sh scripts/install_cpu.sh $(BIN)/python
	touch $@

# A real recorded verl run on this machine's CPU, its analysis, and what to open next.
run: install
	$(BIN)/rlinsight run --profile examples/fully_async.yaml

test: install lint types
	$(BIN)/python -m pytest -m "not quiet"

# What a busy machine cannot run: submitting a job to a Ray cluster that has just started.
test-quiet: install
	$(BIN)/python -m pytest -m quiet

unit: install
	$(BIN)/python -m pytest -m "not e2e"

e2e: install
	$(BIN)/python -m pytest -m e2e

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy does not follow editable installs that map folders, so it is shown the mapping as links.
TYPED := build/typed/rlinsight
types: install
	rm -rf build/typed && mkdir -p $(TYPED)
	ln -s $(CURDIR)/rlinsight/* $(CURDIR)/collectors $(CURDIR)/analyzers $(CURDIR)/webapp $(TYPED)/
	MYPYPATH=build/typed $(BIN)/mypy -p rlinsight

bench: install
	for script in benchmarks/[!h]*.py; do $(BIN)/python $$script || exit 1; done

# docs/cli.md, from the commands themselves.
docs: install
	$(BIN)/python scripts/cli_docs.py docs/cli.md

record-samples: install
	$(BIN)/python sample_traces/record.py
	$(MAKE) golden

# After a deliberate change of a definition: what the tests expect of the sample traces.
golden: install
	$(BIN)/python scripts/golden.py

clean:
	rm -rf $(VENV) build *.egg-info
