#!/usr/bin/env bash
# Runs the job of job.yaml: on the cluster that kubectl knows, or, where there is none, as processes of this machine.
#
# usage: run.sh            LOCKSTEP_ON=local: on this machine although there is a cluster
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ ! -e "$manifest" ]; then
  echo "run: there is no $manifest; ./prepare.sh writes it" >&2
  exit 1
fi
if on_cluster; then
  kubectl apply -f "$manifest"
  echo "follow it with: kubectl logs -f -l job-name=myjob"
else
  "$lockstep" apply -f "$manifest"
  echo "follow it with: $lockstep logs -f myjob"
fi
