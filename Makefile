# `make` installs the command and the page, and ranks plans for the bundled jobs. `make check` tests
# the project in minutes, `make check-all` with every case. All need git, make and Python 3.11 only:
# everything else is installed in .venv, in the versions of constraints.txt. `make constraints`
# renews those: look at what changed, and run `make check`.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# From the environment, since pip builds the project in a process of its own; newer ones read only
# the second there.
PINNED := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
# Without bytecode: Python compiles the few files that it imports, instead of all that there are.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
PIP := $(PINNED) $(BIN)/python $(INSTALL)
FRESH := $(VENV)/fresh
# Where it is set, each of the hundreds of processes that tests start compiles all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check check-all versions app report notebooks docs browser pictures constraints clean

demo: $(VENV)/base
	$(BIN)/advisor recommend

PYTEST := $(BIN)/pytest -n 2 --dist worksteal
# Types and contracts are looked at beside the tests, many of which leave a core idle while they
# wait; what there is to say of them is said after the tests.
TYPED := $(VENV)/typed
PROVED = { $(BIN)/mypy && $(BIN)/lint-imports; } >$(TYPED) 2>&1 & proving=$$!; \
	$(PYTEST) $(1); tested=$$?; \
	wait $$proving; proved=$$?; cat $(TYPED); exit $$((tested | proved))

check: $(VENV)/dev
	$(BIN)/ruff check && $(BIN)/ruff format --check
	$(call PROVED,--nbmake notebooks --ignore notebooks/your_own_train_py.ipynb tests)

# The same with ten times as many examples of each law, processes killed in every way, every figure
# in the documents worked out again, and the notebook that measures for half a minute.
check-all: $(VENV)/dev
	$(BIN)/ruff check && $(BIN)/ruff format --check
	$(call PROVED,-m "" --hypothesis-profile thorough --nbmake notebooks tests)
	$(BIN)/python -m benchmarks.faults && $(BIN)/python -m benchmarks.run_faults
	$(BIN)/python -m research.report --check
	$(MAKE) versions

# A part of the tests with the lowest versions that pyproject.toml allows, and with the newest. The
# plugin of anyio, which comes with streamlit, uses what the newest pytest warns of.
QUICK := tests/cli/test_help.py tests/cli/test_answers.py tests/prediction/test_engine.py \
	tests/page/test_opens.py tests/learn tests/research/test_evaluate.py tests/run/test_metrics.py
versions: $(VENV)/dev
	for which in lowest-direct highest; do \
		$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/$$which && \
		$(BIN)/uv pip install --quiet --python $(VENV)/$$which --resolution $$which --editable '.[page,fit,metrics]' && \
		$(BIN)/uv pip install --quiet --python $(VENV)/$$which pytest hypothesis jsonschema && \
		$(VENV)/$$which/bin/python -m pytest -p no:anyio -p no:cacheprovider $(QUICK) || exit 1; \
	done

app: $(VENV)/base
	$(BIN)/advisor app

# Work out every number in README, docs/, notebooks and profiles/REPORT.md from the committed data,
# and with OTHERS=DIR from the tables of other people in DIR too.
report: $(VENV)/dev
	$(BIN)/python -m research.studies && $(BIN)/python -m research.study_tables
	$(if $(OTHERS),$(BIN)/python -m research.others $(OTHERS))
	$(if $(OTHERS),$(BIN)/python -m research.small_batches $(OTHERS))
	$(BIN)/python -m research.report
	$(BIN)/python -m research.explained
	$(BIN)/python -m research.notebooks

# The notebooks with what they show, as readers find them where nothing runs.
notebooks: $(VENV)/dev
	$(BIN)/python -m research.notebooks

# The site in build/site, of docs/ and what it links to; a broken link is an error.
docs: $(VENV)/base
	$(PIP) --editable '.[docs]'
	$(BIN)/python -m research.commands && $(BIN)/python -m research.job_fields
	$(BIN)/python -m research.site

# The page in a browser: needs a chromium (`apt-get install chromium`).
browser: $(VENV)/browser
	$(BIN)/pytest tests/page/browser

# The pictures of the page in README and docs/.
pictures: $(VENV)/browser
	$(BIN)/python -m research.pictures

# The newest of everything but what was chosen by hand, which the first lines keep. A CUDA build of
# torch says itself which versions of CUDA's packages it needs.
constraints:
	$(PYTHON) -m venv --clear $(FRESH)
	sed '/^# Below/q' constraints.txt > $(FRESH)/pins
	PIP_CONSTRAINT=$(FRESH)/pins $(FRESH)/bin/python $(INSTALL) --editable '.[all,dev,docs,browser]'
	$(FRESH)/bin/python -m pip freeze --all --exclude pip --exclude-editable > $(FRESH)/frozen
	grep -vE '^((torch|torchvision|timm|triton)==|cuda-|nvidia-[^m])' $(FRESH)/frozen >> $(FRESH)/pins
	mv $(FRESH)/pins constraints.txt
	rm -rf $(FRESH)

clean:
	rm -rf $(VENV) build

# The pip of constraints.txt resolves in half of the time of the one that comes with Python 3.11.
$(VENV)/pip: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	touch $@

$(VENV)/base: $(VENV)/pip
	$(PIP) --editable '.[page]'
	touch $@

# It has all that the base has, so that one installation is enough.
$(VENV)/dev: $(VENV)/pip
	$(PIP) --editable '.[dev]'
	touch $(VENV)/base $@

$(VENV)/browser: $(VENV)/dev
	$(PIP) --editable '.[browser]'
	touch $@
