#!/bin/sh
# run.sh BUILD_DIR: compares Lockstep with Hugging Face's transformers, in both directions. Needs Python with torch and
# transformers, so it is not part of ctest. BUILD_DIR has the
# targets lockstep_main and hf_logits.
#
#   1. transformers makes random models (make_golden.py). Lockstep imports them and computes the same logits.
#   2. Lockstep exports models, and makes others itself. transformers loads them and computes the same logits
#      (check_export.py).
set -eu
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 "$here/make_golden.py" "$work/golden"
for folder in "$work"/golden/*; do
  name=$(basename "$folder")
  "$build/lockstep" import "$folder" -o "$work/runs/$name"
  "$build/lockstep" export "$work/runs/$name" --format hf -o "$work/exported/$name"
done
# Checks the logits of golden.json, writes more folders to exported/, and the logits of all to logits.json.
"$build/tests/hf_logits" "$work/golden" "$work/runs" "$work/exported" "$work/logits.json"
python3 "$here/check_export.py" "$work/logits.json" "$work"/exported/*
echo "all logits agree"
