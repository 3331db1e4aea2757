# Every target does its own set-up: an environment in .venv, the kernels built in place, and the
# extras it needs. What is done leaves a stamp in .venv/stamps, so that the second time is quick.

PYTHON ?= python3
VENV ?= .venv
BENCH ?= peers/inference_speed
PYTEST_ARGS ?=
FUZZ_SECONDS ?= 60
FUZZ_COUNT ?= 10
FUZZ_SEED ?= 0
SANITIZED ?= tests
COVERED ?= sklearn_crf

BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
# Python compiles what it imports; pip would compile every file of every package, which takes longer than to fetch them.
INSTALL := -m pip install --quiet --no-compile
PIP := $(BIN)/python $(INSTALL)
PYTEST := -m pytest -n auto --maxprocesses 8 --durations=10
DOCUMENTS := architecture.py docstrings.py readme.py tasks.py typing.py user_guide.py
BUILD_FILES := pyproject.toml setup.py
KERNELS := $(shell find sklearn_crf -name "*.pyx" -o -name "*.pxd" -o -name "*.h" -o -name "*.hpp")
SOURCES := $(BUILD_FILES) MANIFEST.in README.rst $(KERNELS) $(shell find sklearn_crf -name '*.py')

# Workers of pytest fill the cores: threads of BLAS and OpenMP beside them would spin while they wait for one.
test boundscheck sanitize coverage fuzz oldest: export OPENBLAS_NUM_THREADS = 1
test boundscheck sanitize coverage fuzz oldest: export OMP_NUM_THREADS = 1

.PHONY: help demo test docs linkcheck lint format wheel boundscheck sanitize tsan coverage fuzz oldest bench bench-check clean

help:
	@echo "make demo         learn to restore digits and to segment a photograph; pictures in demo_output"
	@echo "make test         run the tests; PYTEST_ARGS='-k graphs' passes options on"
	@echo "make docs         build the site into docs/_build/html"
	@echo "make linkcheck    check that the addresses of all links in the docs answer (needs the network)"
	@echo "make lint         check style and types; 'make format' corrects what it can"
	@echo "make wheel        build sdist and wheel into dist"
	@echo "make boundscheck  run the tests with indices of memory views and of C++ headers checked"
	@echo "make sanitize     run SANITIZED=$(SANITIZED) with all memory of kernels watched (gcc, Linux)"
	@echo "make tsan         let threads share flows and blocks of kernels while ThreadSanitizer looks on (gcc, Linux)"
	@echo "make coverage     run the tests, list the lines that none of them reaches, and fail where a module is under 90 %"
	@echo "make fuzz         run the fuzzers, each for FUZZ_SECONDS=$(FUZZ_SECONDS) s from FUZZ_SEED=$(FUZZ_SEED) on"
	@echo "make oldest       build and run the tests with the oldest versions that pyproject.toml admits"
	@echo "make bench        run benchmarks/\$$(BENCH).py, by default $(BENCH)"
	@echo "make bench-check  compare with other packages, and with the ratios recorded in benchmarks/peers/peers.json"
	@echo "make clean        remove all that the other targets made"

demo: $(STAMPS)/plot,images $(STAMPS)/build
	$(BIN)/python examples/demo.py --output demo_output

test: $(STAMPS)/dev $(STAMPS)/build
	$(BIN)/python $(PYTEST) $(PYTEST_ARGS)

docs: $(STAMPS)/docs $(STAMPS)/build
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "The site is in docs/_build/html/index.html"

linkcheck: $(STAMPS)/docs $(STAMPS)/build
	$(BIN)/python -m sphinx -q -b linkcheck -D plot_gallery=False docs docs/_build/linkcheck

lint: $(STAMPS)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(abspath $(BIN)):$$PATH" cython-lint sklearn_crf  # it calls pycodestyle by name

format: $(STAMPS)/lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: dist/.stamp

# The checked kernels go into a folder of their own and the tests run from there, so that the ones
# in place stay as fast as they are. Documents and tasks call kernels as other tests do: `make test` runs these.
boundscheck: $(STAMPS)/dev
	rm -rf build/boundscheck
	SKLEARN_CRF_BOUNDSCHECK=1 $(BIN)/python setup.py -q build --build-lib build/boundscheck \
		--build-temp build/boundscheck-objects
	cd build/boundscheck && "$(abspath $(BIN)/python)" $(PYTEST) -c ../../pyproject.toml --rootdir ../.. \
		$(addprefix --ignore ../../tests/test_,$(DOCUMENTS)) $(PYTEST_ARGS) ../../tests

# Python itself is not instrumented: the sanitizers are loaded before it. libstdc++ must come with them, or they do not
# see its exceptions. What Python leaves allocated when it ends is no leak of ours.
sanitize: $(STAMPS)/dev
	SKLEARN_CRF_SANITIZE=1 $(BIN)/python setup.py -q build --build-lib build/sanitize --build-temp build/sanitize-objects
	cd build/sanitize && LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
		"$(abspath $(BIN)/python)" $(PYTEST) -c ../../pyproject.toml --rootdir ../.. $(PYTEST_ARGS) \
		$(addprefix ../../,$(SANITIZED))

# Of C++ alone: Python is not instrumented, and its threads hand over work in ways that this sanitizer cannot see.
tsan:
	mkdir -p build
	g++ -std=c++17 -O1 -g -fsanitize=thread -pthread -Isklearn_crf/kernels/cuts tests/threads/flow_in_boxes.cpp \
		-o build/flow_in_boxes
	TSAN_OPTIONS=halt_on_error=1 build/flow_in_boxes
	g++ -std=c++17 -O1 -g -fsanitize=thread -pthread -Isklearn_crf/kernels tests/threads/blocks_in_pool.cpp \
		-o build/blocks_in_pool
	TSAN_OPTIONS=halt_on_error=1 build/blocks_in_pool
	g++ -std=c++17 -O1 -g -fsanitize=thread -pthread -Isklearn_crf/kernels tests/threads/risk_of_chains.cpp \
		-o build/risk_of_chains
	TSAN_OPTIONS=halt_on_error=1 build/risk_of_chains

# With Ray, which the other targets do without: its workers take minutes to start on a busy machine.
coverage: $(STAMPS)/dev $(STAMPS)/ray $(STAMPS)/build
	$(BIN)/python $(PYTEST) --cov --cov-report=term-missing:skip-covered $(PYTEST_ARGS)
	$(BIN)/python .ci/module_coverage.py $(COVERED)

# In one process, so that what was tried is counted. With FUZZ_SECONDS=0 each fuzzer tries FUZZ_COUNT seeds.
fuzz: $(STAMPS)/dev $(STAMPS)/build
	SKLEARN_CRF_FUZZ_SECONDS=$(FUZZ_SECONDS) SKLEARN_CRF_FUZZ_COUNT=$(FUZZ_COUNT) \
		SKLEARN_CRF_FUZZ_SEED=$(FUZZ_SEED) $(BIN)/python -m pytest -q $(PYTEST_ARGS) tests/fuzz

# The tests run from another folder, so that the installed wheel is what they import.
oldest: build/oldest/.stamp $(VENV)-oldest/.stamp
	$(VENV)-oldest/bin/python $(INSTALL) --no-deps --force-reinstall build/oldest/*.whl
	cd $(VENV)-oldest && bin/python $(PYTEST) -c "$(CURDIR)/pyproject.toml" --rootdir "$(CURDIR)" \
		--ignore "$(CURDIR)/tests/fuzz" $(PYTEST_ARGS) "$(CURDIR)/tests"

bench: $(STAMPS)/bench $(STAMPS)/build
	$(BIN)/python benchmarks/$(BENCH).py

bench-check: $(STAMPS)/bench $(STAMPS)/build
	$(BIN)/python benchmarks/peers/peers.py --check benchmarks/peers/peers.json

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-oldest-build build dist demo_output *.egg-info .pytest_cache .ruff_cache .hypothesis
	rm -rf docs/_build docs/generated docs/auto_examples docs/sg_execution_times.rst
	find sklearn_crf \( -name '*.c' -o -name '*.cpp' -o -name '*.so' \) -exec rm -f {} +
	find sklearn_crf tests examples benchmarks docs -name __pycache__ -exec rm -rf {} +

$(STAMPS)/venv:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	mkdir -p $(STAMPS)
	touch $@

# What an isolated build would install for itself, once, for all builds in place.
$(STAMPS)/build-requirements: pyproject.toml .ci/requirements.py | $(STAMPS)/venv
	$(PIP) $$($(BIN)/python .ci/requirements.py build)
	touch $@

$(addprefix $(STAMPS)/,plot,images dev ray docs bench): $(STAMPS)/build-requirements $(BUILD_FILES)
	SKLEARN_CRF_SKIP_KERNELS=1 PYTHONWARNINGS=ignore $(PIP) --no-build-isolation --editable ".[$(@F)]"
	touch $@

$(STAMPS)/lint: pyproject.toml .ci/requirements.py | $(STAMPS)/venv
	$(PIP) $$($(BIN)/python .ci/requirements.py lint)
	touch $@

$(STAMPS)/build: $(STAMPS)/build-requirements $(BUILD_FILES) $(KERNELS)
	$(BIN)/python setup.py -q build_ext --inplace
	touch $@

dist/.stamp: $(SOURCES) | $(STAMPS)/venv
	rm -rf dist
	$(PIP) build
	$(BIN)/python -m build --outdir dist > /dev/null
	touch $@

# Of the sdist, so that no source of an old Cython is left where kernels are built in place.
build/oldest/.stamp: dist/.stamp .ci/requirements.py
	rm -rf build/oldest $(VENV)-oldest-build
	$(PYTHON) -m venv $(VENV)-oldest-build
	$(VENV)-oldest-build/bin/python $(INSTALL) --upgrade pip
	$(VENV)-oldest-build/bin/python $(INSTALL) $$($(BIN)/python .ci/requirements.py oldest-build)
	$(VENV)-oldest-build/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/oldest dist/*.tar.gz
	touch $@

$(VENV)-oldest/.stamp: pyproject.toml .ci/requirements.py | $(STAMPS)/venv
	rm -rf $(VENV)-oldest
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python $(INSTALL) --upgrade pip
	$(VENV)-oldest/bin/python $(INSTALL) $$($(BIN)/python .ci/requirements.py oldest)
	touch $@
