#!/bin/sh
# run.sh BUILD COMMAND...: runs the command with a GPU that this machine's processors stand in for. Kernels are compiled
# by this machine's compiler and kept in BUILD/tests/emulated/cache, unless LOCKSTEP_CACHE_DIR says where. The GPU has
# LOCKSTEP_EMULATED_PROCESSORS processors (16).
folder=$(cd "$1" && pwd)/tests/emulated
shift
[ -e "$folder/libemulated_gpu.so" ] || {
  echo "run.sh: $folder/libemulated_gpu.so is not there; build the target emulated_gpu, where CUDA's headers are" >&2
  exit 1
}
export LOCKSTEP_CACHE_DIR="${LOCKSTEP_CACHE_DIR:-$folder/cache}"
export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_PRELOAD="$folder/libemulated_gpu.so"
exec "$@"
