# Two commands matter: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test check docs release-check setup clean

demo: $(VENV)/.installed  ## a small network, noise, every denoiser: a table, figures, a page
	$(BIN)/quietnn demo

test: $(VENV)/.installed  ## the tests that need nothing but this repository
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not assets and not ray and not flower and not slow and not browser and not analog and not wireless and not torchao and not release and not notebooks"

release-check: $(VENV)/.installed  ## builds wheel and sdist, installs the wheel where it is claimed to work
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,release]'
	$(BIN)/python -m pytest -m release tests/test_release.py

check: $(VENV)/.installed  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.docs  ## the documentation site, in site/; a broken link or reference is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "quietnn needs Python 3.11 or newer, this is %s; try: make PYTHON=python3.12" % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q src  # so that a shell that forbids bytecode does not compile at every start
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) site docs/results .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
