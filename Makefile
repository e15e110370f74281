# Two commands: `make reproduce` and `make test`.  PYTHON=... chooses the interpreter (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
# Some fifty processes read the same sources: they are compiled once, also where Python is told to keep nothing compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: reproduce docs gpu test clean

reproduce: .venv/installed
	$(BIN)/scalevec check --report paper_checks.md
	$(BIN)/scalevec figures
	@$(BIN)/scalevec report --figures results/figures

docs: .venv/installed
	$(BIN)/scalevec report --api

gpu: .venv/installed
	$(BIN)/scalevec experiment large --effort full --device cuda --minutes 9 \
		--json results/large.json --figure results/figures/large.svg

test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; $(BIN)/scalevec check && wait $$types
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile  # one thread for each worker

.venv/installed: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than Python 3.11; run: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check "$$(grep '^torch==' requirements.txt)"
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

clean:
	rm -rf .venv results
