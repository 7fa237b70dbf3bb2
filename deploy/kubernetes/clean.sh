#!/usr/bin/env bash
# Removes what run.sh has made, and waits until it is gone.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if on_cluster; then
  kubectl delete -f "$manifest" --ignore-not-found --wait=true --timeout=300s
else
  "$lockstep" delete -f "$manifest" --ignore-not-found
fi
