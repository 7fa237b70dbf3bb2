#!/usr/bin/env bash
# Runs the job of job.yaml on the cluster of kubectl's current context, or on this machine if there is none.
#
# usage: run.sh            LOCKSTEP_ON=local: always run on this machine
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ ! -e "$manifest" ]; then
  echo "run: $manifest does not exist; create it with ./prepare.sh" >&2
  exit 1
fi
if on_cluster; then
  applied=$(kubectl apply -f "$manifest")
else
  applied=$("$lockstep" apply -f "$manifest")
fi
echo "$applied"

# Find the line of the job in the output: `job.batch/myjob created`.
job=$(sed -nE 's,^(job\.batch|jaxjob\.kubeflow\.org|jobset\.[^/]*|trainjob\.[^/]*)/([^ ]+) .*,\1 \2,p' <<<"$applied" | head -n 1)
kind=${job%% *} name=${job#* }
space=$(sed -nE 's/^  namespace: "?([^" ]+)"?$/\1/p' "$manifest" | head -n 1)
if ! on_cluster; then
  echo "follow the log: $lockstep logs -f $name${space:+ -n $space}"
  exit
fi
case $kind in
  job.batch) label=job-name ;;
  jaxjob.*) label=training.kubeflow.org/job-name ;;
  *) label=jobset.sigs.k8s.io/jobset-name ;;
esac
echo "follow the log: kubectl logs -f -l $label=$name${space:+ -n $space}"
