# make run    start the service on http://127.0.0.1:8000 (PORT=8001 make run for another port)
# make test   the whole test suite
# make lint   the style check
# make toolchain-gpu, make toolchain-tpu   what recompiles modules for NVIDIA GPUs and for TPUs; neither needs one
# make bench  how long the engine takes, next to XLA's own parser (DUMP=DIR make bench for another dump)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test lint bench clean toolchain-gpu toolchain-tpu

run: $(VENV)/run.stamp
	@$(BIN)/python manage.py serve

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 2 --dist=loadgroup $(ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .

bench: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.bench $(DUMP)

toolchain-gpu: $(VENV)/run.stamp
	@$(BIN)/python manage.py toolchain add cuda

toolchain-tpu: $(VENV)/run.stamp
	@$(BIN)/python manage.py toolchain add tpu

clean:
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name it: PYTHON=python3.12 make run"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "No virtual environment could be made; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

$(VENV)/run.stamp: requirements.txt | $(BIN)/python
	@echo "Installing packages into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/dev.stamp: requirements.txt requirements-dev.txt | $(BIN)/python
	@echo "Installing packages into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@ $(VENV)/run.stamp
