# Two commands matter: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test check setup clean

demo: $(VENV)/.installed  ## a small network, noise, every denoiser: a table, figures, a page
	$(BIN)/quietnn demo

test: $(VENV)/.installed  ## the tests that need nothing but this repository
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not assets and not ray and not flower and not slow and not browser and not analog and not wireless and not torchao"

check: $(VENV)/.installed  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "quietnn needs Python 3.11 or newer, this is %s; try: make PYTHON=python3.12" % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q src  # so that a shell that forbids bytecode does not compile at every start
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
