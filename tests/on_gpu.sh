#!/bin/sh
# on_gpu.sh LOCKSTEP COMMAND...: runs the command where there is a GPU to compute on; else it is skipped.
"$1" devices --platform cuda >/dev/null || exit 77
shift
exec "$@"
