# Everything a person or a CI job runs. Each target works from a fresh clone with nothing but Python 3.11+.

PYTHON_CANDIDATES := python3 python3.13 python3.12 python3.11 python3.14
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SOURCES := supervisor worker ipc leash journal tests benchmarks examples shoal.py

.PHONY: setup test check chaos bench demo format lock clean

setup: $(STAMP)

# The stamp is older than any of these: install again.
$(STAMP): pyproject.toml requirements/dev.lock tools/setup.sh
	@sh tools/setup.sh "$(VENV)" $(PYTHON_CANDIDATES)
	@touch $@

# What fails beside other tests is tried once more alone: real daemons on a busy machine can be late.
test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile || \
	    $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

check: setup
	$(BIN)/ruff format --check $(wildcard $(SOURCES))
	$(BIN)/ruff check $(wildcard $(SOURCES))
	$(BIN)/mypy
	$(BIN)/python -m tests.arrows
	$(BIN)/python -m tests.docs.reference --check

format: setup
	$(BIN)/ruff format $(wildcard $(SOURCES))
	$(BIN)/ruff check --fix $(wildcard $(SOURCES))
	$(BIN)/python -m tests.docs.reference --write

# Half an hour of kills, pauses and full disks; a short run of it is among the tests.
chaos: setup
	$(BIN)/python -m tests.chaos --rounds 200

bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.lock
	$(BIN)/python -m benchmarks

demo: setup
	$(BIN)/python -m examples.demo

# Pin the newest releases that pyproject.toml allows; needs uv.
lock:
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --python-version 3.11 \
	    --no-header --no-annotate --upgrade -o requirements/dev.lock
	uv pip compile pyproject.toml --extra dev --extra bench --universal --generate-hashes --python-version 3.11 \
	    --no-header --no-annotate --upgrade -c requirements/dev.lock -o requirements/bench.lock

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
