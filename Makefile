# `make` ranks plans for the bundled jobs; `make check` proves the project, in minutes, and
# `make check-all` with every case. All start from git, make and Python 3.11
# alone: everything else goes into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo check check-all app report clean

demo: $(VENV)/base
	$(BIN)/advisor recommend

PYTEST := $(BIN)/pytest -n 2 --dist worksteal
LINTED := $(BIN)/ruff check && $(BIN)/ruff format --check && $(BIN)/mypy && $(BIN)/lint-imports

check: $(VENV)/dev
	$(LINTED)
	$(PYTEST) --nbmake notebooks tests

# The same with ten times as many examples of each law, processes killed in every way, and every
# figure in the documents worked out again.
check-all: $(VENV)/dev
	$(LINTED)
	$(PYTEST) -m "" --hypothesis-profile thorough --nbmake notebooks tests
	$(BIN)/python -m advisor.validation.report --check

app: $(VENV)/base
	$(BIN)/advisor app

# Whatever the README and profiles/REPORT.md say in numbers, again from the committed data.
report: $(VENV)/base
	$(BIN)/python -m advisor.validation.report

clean:
	rm -rf $(VENV)

$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/dev: $(VENV)/base
	$(PIP) --editable '.[profile,dev]'
	touch $@
