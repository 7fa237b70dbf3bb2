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
  applied=$(kubectl apply -f "$manifest")
else
  applied=$("$lockstep" apply -f "$manifest")
fi
echo "$applied"

# The job is the object whose name in the output begins with its kind: `job.batch/myjob created`.
job=$(sed -nE 's,^(job\.batch|jaxjob\.kubeflow\.org|jobset\.[^/]*|trainjob\.[^/]*)/([^ ]+) .*,\1 \2,p' <<<"$applied" | head -n 1)
kind=${job%% *} name=${job#* }
space=$(sed -nE 's/^  namespace: "?([^" ]+)"?$/\1/p' "$manifest" | head -n 1)
if ! on_cluster; then
  echo "follow it with: $lockstep logs -f $name${space:+ -n $space}"
  exit
fi
case $kind in
  job.batch) label=job-name ;;
  jaxjob.*) label=training.kubeflow.org/job-name ;;
  *) label=jobset.sigs.k8s.io/jobset-name ;;
esac
echo "follow it with: kubectl logs -f -l $label=$name${space:+ -n $space}"
