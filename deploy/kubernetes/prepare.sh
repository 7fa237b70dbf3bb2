#!/usr/bin/env bash
# Writes job.yaml, an Indexed Job that trains on MNIST, with the variables of variables.json.
#
# usage: prepare.sh [NAME=VALUE...]      for example  prepare.sh image=registry/lockstep:1 gpus=true
# Environment variables and defaults: KIND (indexed-job), EPOCHS (8), MANIFEST (job.yaml), LOCKSTEP (see common.sh)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

set=()
for each in "$@"; do set+=(--set "$each"); done
umask 077  # the manifest contains the job's token
"$lockstep" render kubernetes --kind "${KIND:-indexed-job}" --variables "${VARIABLES:-variables.json}" \
  --set name=myjob --set service=mysvc --set port=8080 \
  --set "args=[\"train\",\"--epochs\",\"${EPOCHS:-8}\",\"--loggers\",\"batches\",\"--no-save\"]" "${set[@]}" --output "$manifest"
echo "wrote $manifest"
