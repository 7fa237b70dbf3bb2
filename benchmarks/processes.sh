#!/bin/sh
# All measurements of several processes in docs/performance.md; takes about three minutes on idle cores:
#   benchmarks/processes.sh [BUILD]        # the build folder; default: build
build=${1:-build}
export OMPI_MCA_btl_base_warn_component_unused=0
"$build/benchmarks/comm_ranks" && echo && "$build/benchmarks/launch"
