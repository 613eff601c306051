# Every target sets up what it needs in .venv by itself: `make demo` on a fresh machine is enough.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install demo test .test-first .test-second .test-live test-experiments test-torch test-ray bench sanitize fuzz fmt

PYTHON ?= python3
TORCH ?= torch
RAY ?= ray>=2.58,<2.60
OLDEST_RAY := ray==2.52.0
RAY_LIBRARIES := "pandas>=2.2,<4" "pyarrow>=18,<27" "fsspec>=2024.2" "pydantic>=2.10,<3"
BIN := .venv/bin
STAMP := .venv/.installed
NATIVE := build/native
NATIVE_STAMP := $(NATIVE)/.installed
NATIVE_SOURCES := CMakeLists.txt $(shell find src/headgate/*/native)
SANITIZED := build/sanitize
PIP := $(BIN)/pip install --quiet --no-input --disable-pip-version-check --constraint constraints.txt

# Tests on real Ray nodes. The files of a group share a cluster, in this order (tests/live/shared.py);
# each other file is alone. Those that take longest come first.
system = $(patsubst %,tests/live/test_system_%.py,$(1))
LIVE_pair := $(call system,head time_limits packages calls checkpoints stops scaling)
LIVE_four := $(call system,restart results)
LIVE_three := $(call system,forms training nodes)
LIVE_two := $(call system,ray gangs plan)
LIVE_members := $(call system,limits users)
LIVE_ray := $(sort $(wildcard tests/live/test_ray_*.py))
LIVE_GROUPS := pair four three two members ray
LIVE_LONG := $(call system,joined demo) tests/live/test_first_hour.py
LIVE_EXPERIMENTS := $(wildcard tests/live/test_*_live.py)
LIVE_OWN := $(LIVE_EXPERIMENTS) $(call system,torch ray_libraries)  # have targets of their own
LIVE_ALONE := $(filter-out $(LIVE_LONG) $(LIVE_OWN) \
  $(foreach group,$(LIVE_GROUPS),$(LIVE_$(group))), \
  $(sort $(shell grep -rlE "^(pytestmark = \[?|@| +)pytest\.mark\.live" tests --include="test_*.py")))
LIVE := $(LIVE_GROUPS:%=.live-%) $(addprefix .live/,$(LIVE_LONG) $(LIVE_ALONE))
.PHONY: $(LIVE)

# All other tests, in two parts that take about as long: those in these packages, and those in others.
FIRST := $(addprefix tests/,api base cli engine experiments flow foresight journal law live)

# Run tests with the arguments $(2), and show what they print, kept in the file $(1), at their end.
define tests
log=build/live/$(1).log; \
$(BIN)/pytest $(2) >$$log 2>&1 && failed=0 || failed=$$?; cat $$log; exit $$failed
endef
live = $(call tests,$(notdir $(firstword $(1))),-m live $(1))

help:
	@echo "make install   the environment, in .venv"
	@echo "make demo      several jobs on a small local cluster, then the same in the simulator"
	@echo "make test      all checks and tests"
	@echo "make test-experiments  live runs of \`headgate reproduce\`, very short"
	@echo "make test-torch PyTorch on several nodes; installs it in build/torch (TORCH=... for a version)"
	@echo "make test-ray  Ray's libraries in Ray programs, and the oldest Ray; installs them in build (RAY=... for a version)"
	@echo "make bench     the measurements in bench/"
	@echo "make sanitize  the tests of what is compiled, with assertions and sanitizers"
	@echo "make fuzz      many random cases: flow core and other solvers, storms under all policies, heavy tests"
	@echo "make fmt       format the code"

install: $(NATIVE_STAMP)

# The stamps are as new as the end of the last installation and the start of the last compilation
# that went through: what is edited while it compiles is compiled next time.
$(STAMP): pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory .debian-packages
	@echo "Installing into .venv (some minutes the first time)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@$(PIP) pip
	@$(PIP) scikit-build-core nanobind cmake ninja
	@$(PIP) --no-build-isolation --editable '.[live]' --group dev
	@touch $@

# Compile as the build type $(1), in the directory $(2), into the package below $(3).
define compile
$(BIN)/cmake -S . -B $(2) -G Ninja -DCMAKE_BUILD_TYPE=$(1) \
  -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DPython_EXECUTABLE=$(abspath $(BIN)/python) >/dev/null
$(BIN)/cmake --build $(2) -- --quiet
$(BIN)/cmake --install $(2) --prefix $(3) >/dev/null
endef

$(NATIVE_STAMP): $(STAMP) $(NATIVE_SOURCES)
	@echo "Compiling"
	@mkdir -p $(NATIVE)
	@touch $(NATIVE)/.started
	@$(call compile,Release,$(NATIVE),src)
	@mv $(NATIVE)/.started $@

ifneq ($(words $(wildcard src/headgate/*/_native.*.so)),$(words $(wildcard src/headgate/*/native)))
.PHONY: $(NATIVE_STAMP)
endif

# What comes from Debian: Python's venv and headers, a C++ compiler, and for root `ip` and `tc`, with
# which tests build networks, and `nft`, with which Headgate closes the ports of Ray to other users.
.PHONY: .debian-packages
.debian-packages:
	@missing=; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || missing="$$missing python3"; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	headers=$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null || true); \
	test -f "$$headers/Python.h" || missing="$$missing python3-dev"; \
	command -v "$${CXX:-c++}" >/dev/null || missing="$$missing g++"; \
	if [ "$$(id -u)" = 0 ]; then \
	  command -v tc >/dev/null || missing="$$missing iproute2"; \
	  command -v nft >/dev/null || missing="$$missing nftables"; \
	fi; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "Headgate needs Python 3.11 or later with venv and headers, and a C++20 compiler." >&2; \
	  echo "Install as root:$$missing" >&2; \
	  echo "(on Debian: apt-get install$$missing), then run make again." >&2; exit 1; \
	fi; \
	echo "Installing Debian packages:$$missing"; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get -qq update; \
	apt-get -qq install --yes --no-install-recommends $$missing >/dev/null

demo: install
	@$(BIN)/headgate demo

test: install
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@mkdir -p build/live
	@echo "Tests on real Ray nodes, which mostly wait, run beside all others; each group is shown at its end."
	@$(MAKE) --no-print-directory --keep-going -j3 .test-live .test-first .test-second

# The others take the time of the CPUs that those on Ray nodes, which have deadlines, leave.
.test-first:
	@nice -n 10 $(BIN)/pytest -m "not live" $(FIRST)

.test-second:
	@nice -n 10 $(SHELL) -c '$(call tests,second,-m "not live" tests $(addprefix --ignore=,$(FIRST)))'

# Two at a time, one process for each group or file.
.test-live:
	@$(MAKE) --no-print-directory --keep-going -j2 $(LIVE)

$(LIVE_GROUPS:%=.live-%): .live-%:
	@$(call live,$(LIVE_$*))

$(addprefix .live/,$(LIVE_LONG) $(LIVE_ALONE)): .live/%: %
	@$(call live,$<)

test-experiments: install
	@$(BIN)/pytest -m live $(LIVE_EXPERIMENTS)

test-torch: install
	@test -x build/torch/bin/pip || $(PYTHON) -m venv build/torch
	@build/torch/bin/pip install --quiet --no-input --disable-pip-version-check "$(TORCH)" numpy
	@HEADGATE_TEST_TORCH=$(abspath build/torch/bin) $(BIN)/pytest -m live tests/live/test_system_torch.py

# A Ray other than Headgate's, with the least that its libraries need; then a program on the oldest.
test-ray: install
	@test -x build/ray/bin/pip || $(PYTHON) -m venv build/ray
	@build/ray/bin/pip install --quiet --no-input --disable-pip-version-check "$(RAY)" $(RAY_LIBRARIES)
	@HEADGATE_TEST_RAY_LIBRARIES=$(abspath build/ray/bin) $(BIN)/pytest -m live \
	  tests/live/test_system_ray_libraries.py
	@test -x build/ray-oldest/bin/pip || $(PYTHON) -m venv build/ray-oldest
	@build/ray-oldest/bin/pip install --quiet --no-input --disable-pip-version-check "$(OLDEST_RAY)"
	@HEADGATE_TEST_RAY_LIBRARIES=$(abspath build/ray-oldest/bin) $(BIN)/pytest -m live \
	  tests/live/test_system_ray_libraries.py -k ray_program

bench: install
	@shopt -s nullglob; for script in bench/[!_]*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

# A copy of the package around the checked build. Without `site`, the editable install stays out.
sanitize: install
	@rm -rf $(SANITIZED)/site
	@mkdir -p $(SANITIZED)/site
	@cp -R src/headgate $(SANITIZED)/site
	@$(call compile,Sanitize,$(SANITIZED),$(SANITIZED)/site)
	@libraries=$$(for name in libasan.so libstdc++.so; do $${CXX:-c++} -print-file-name=$$name; done); \
	packages=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))'); \
	LD_PRELOAD=$$(echo $$libraries) ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  PYTHONPATH=$(abspath $(SANITIZED)/site):$$packages $(BIN)/python -S -m pytest \
	  tests/base tests/flow tests/policies/flow/test_shares.py \
	  tests/policies/flow/test_queue_tree.py tests/planning/deadlines tests/planning/shares/test_counts.py \
	  tests/planning/shares/test_standing.py tests/planning/shares/test_work.py

fuzz: install
	@$(BIN)/python fuzz/run.py
	@HEADGATE_TEST_TIMES=10 $(BIN)/pytest -m "not live" --timeout=0 \
	  $(shell grep -rlE "^from tests.(cases|policies.laws) import" tests --include="test_*.py")

fmt: install
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
