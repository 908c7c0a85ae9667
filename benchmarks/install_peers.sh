#!/usr/bin/env bash
# Installs the load tools that benchmarks/tools.py measures beside ours, each in a virtual environment of its own:
# .venvs/vllm, .venvs/guidellm, .venvs/aiperf and .venvs/inference-perf (7 GB in all, half of it vLLM for CPUs).
# Does nothing where the stamp names these versions already.
# usage: benchmarks/install_peers.sh [vllm] [guidellm] [aiperf] [inference-perf]
# PYTHON: the interpreter to build them with (default: python3); inference-perf needs 3.12 or newer: PYTHON312
set -euo pipefail

AIPERF=aiperf==0.13.0
GUIDELLM='guidellm[perf]==0.8.1'
INFERENCE_PERF=inference-perf==0.7.0
# GuideLLM imports torch for its data loader alone: the build for CPUs is a tenth of the one for GPUs.
TORCH=torch==2.13.0+cpu

cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

install() {
  local venv=.venvs/$1 interpreter=$2
  shift 2
  [ "$(cat "$venv/.peer" 2>/dev/null)" = "$*" ] && return
  rm -rf "$venv"
  "$interpreter" -m venv "$venv"
  "$venv/bin/pip" install --quiet --upgrade pip
  "$venv/bin/pip" install --quiet "$@"
  echo "$*" > "$venv/.peer"
}

[ $# -gt 0 ] || set -- vllm guidellm aiperf inference-perf
for peer in "$@"; do
  case $peer in
    vllm) bash .ci/install_engines.sh vllm ;;
    guidellm) install guidellm "$python" "$TORCH" "$GUIDELLM" ;;
    aiperf) install aiperf "$python" "$AIPERF" ;;
    inference-perf) install inference-perf "${PYTHON312:-python3.12}" "$INFERENCE_PERF" ;;
    *) echo "unknown peer $peer: one of vllm, guidellm, aiperf, inference-perf" >&2; exit 2 ;;
  esac
done
echo "peers are in .venvs/"
