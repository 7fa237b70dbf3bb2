# What prepare.sh, run.sh and clean.sh share. Sourced by them.

cd "$(dirname "${BASH_SOURCE[0]}")"

# The program: $LOCKSTEP, or the one of the build beside this folder, or the one on the PATH.
lockstep=${LOCKSTEP:-}
if [ -z "$lockstep" ]; then
  if [ -x ../../build/lockstep ]; then lockstep=$(cd ../../build && pwd)/lockstep; else lockstep=lockstep; fi
fi
manifest=${MANIFEST:-job.yaml}

# Whether the job goes to a cluster: as $LOCKSTEP_ON says, or else when kubectl is there and knows one.
on_cluster() {
  case ${LOCKSTEP_ON:-} in
    kubernetes) return 0 ;;
    "") command -v kubectl >/dev/null && kubectl config current-context >/dev/null 2>&1 ;;
    *) return 1 ;;
  esac
}
