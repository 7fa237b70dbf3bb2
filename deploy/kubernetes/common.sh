# Common part of prepare.sh, run.sh and clean.sh, which source it.

cd "$(dirname "${BASH_SOURCE[0]}")"

# The program: $LOCKSTEP, else build/lockstep of this source tree, else `lockstep` on the PATH.
lockstep=${LOCKSTEP:-}
if [ -z "$lockstep" ]; then
  if [ -x ../../build/lockstep ]; then lockstep=$(cd ../../build && pwd)/lockstep; else lockstep=lockstep; fi
fi
manifest=${MANIFEST:-job.yaml}

# Whether to run on a cluster: decided by $LOCKSTEP_ON, else by whether kubectl has a current context.
on_cluster() {
  case ${LOCKSTEP_ON:-} in
    kubernetes) return 0 ;;
    "") command -v kubectl >/dev/null && kubectl config current-context >/dev/null 2>&1 ;;
    *) return 1 ;;
  esac
}
