#!/bin/sh
# run.sh BUILD COMMAND...: runs the command with a GPU emulated by this machine's CPUs. Kernels are compiled by this
# machine's compiler and cached in $LOCKSTEP_CACHE_DIR (default: BUILD/tests/emulated/cache). The GPU has
# LOCKSTEP_EMULATED_PROCESSORS multiprocessors (default: 16). With LOCKSTEP_EMULATED_TEXTS=FOLDER the texts of kernels
# that are not cached are written to the folder, and these kernels do nothing: to compare texts before and after a change.
folder=$(cd "$1" && pwd)/tests/emulated
shift
[ -e "$folder/libemulated_gpu.so" ] || {
  echo "run.sh: $folder/libemulated_gpu.so does not exist; install CUDA's headers and build the target emulated_gpu" >&2
  exit 1
}
export LOCKSTEP_CACHE_DIR="${LOCKSTEP_CACHE_DIR:-$folder/cache}"
export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_PRELOAD="$folder/libemulated_gpu.so"
exec "$@"
