#!/bin/sh
# All that docs/performance.md says of several processes, in one go, in about three minutes on quiet cores:
#   benchmarks/processes.sh [BUILD]        # the build folder; default: build
build=${1:-build}
export OMPI_MCA_btl_base_warn_component_unused=0
"$build/benchmarks/comm_ranks" && echo && "$build/benchmarks/launch"
