#!/usr/bin/env bash
# Deletes everything that run.sh created and waits until it is deleted.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if on_cluster; then
  kubectl delete -f "$manifest" --ignore-not-found --wait=true --timeout=300s
else
  "$lockstep" delete -f "$manifest" --ignore-not-found
fi
