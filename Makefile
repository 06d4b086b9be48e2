# `make` ranks plans for the bundled jobs; `make check` proves the project. Both start from git,
# make and Python 3.11 alone: everything else goes into .venv, in the versions of constraints.txt.
# `make constraints` renews those: see what changed, and that `make check` passes.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# From the environment, since pip builds the project in a process of its own; newer ones read only
# the second there.
PINNED := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
INSTALL := -m pip install --quiet --disable-pip-version-check
PIP := $(PINNED) $(BIN)/python $(INSTALL)
FRESH := $(VENV)/fresh

.PHONY: demo check app report constraints clean

demo: $(VENV)/base
	$(BIN)/advisor recommend

check: $(VENV)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist worksteal
	$(BIN)/pytest --nbmake notebooks

app: $(VENV)/base
	$(BIN)/advisor app

# Whatever the README and profiles/REPORT.md say in numbers, again from the committed data.
report: $(VENV)/base
	$(BIN)/python -m advisor.validation.report

# The newest of everything but what was chosen by hand, which the first lines keep. A CUDA build of
# torch says itself which versions of CUDA's packages it needs.
constraints:
	$(PYTHON) -m venv --clear $(FRESH)
	sed '/^# Below/q' constraints.txt > $(FRESH)/pins
	PIP_CONSTRAINT=$(FRESH)/pins $(FRESH)/bin/python $(INSTALL) --editable '.[profile,cluster,dev]'
	$(FRESH)/bin/python -m pip freeze --all --exclude pip --exclude-editable > $(FRESH)/frozen
	grep -vE '^((torch|torchvision|timm|triton)==|cuda-|nvidia-[^m])' $(FRESH)/frozen >> $(FRESH)/pins
	mv $(FRESH)/pins constraints.txt
	rm -rf $(FRESH)

clean:
	rm -rf $(VENV)

$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/dev: $(VENV)/base
	$(PIP) --editable '.[profile,dev]'
	touch $@
