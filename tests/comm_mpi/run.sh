#!/bin/sh
# Runs the test program under mpirun with 1 to 8 processes: run.sh PROGRAM. Skipped when mpirun is not installed.
program=$1
if ! command -v mpirun > /dev/null; then
  echo "skipped: mpirun is not installed; install openmpi-bin"
  exit 77
fi
# Allow root and more ranks than cores; this host only.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1
run() {
  echo "on $*"
  timeout 120 mpirun -n "$@" --gtest_brief=1 || exit 1
}
usual=--gtest_filter=-MpiStart.RejectsAProgram*
for processes in 1 2 3 4 7 8; do
  run $processes "$program" "$usual"
done
# Only the first group of a process has tags (see mpi_links.h): run each check once more as the first one.
for check in $("$program" --gtest_list_tests --gtest_filter='Mpi/*' | sed -n 's/^  \([A-Za-z/0-9]*\).*/\1/p'); do
  run 2 "$program" "--gtest_filter=Mpi/*.$check"
done
# Lower thread levels: requested by lockstep, and by the program.
for threads in serialized funneled; do
  export LOCKSTEP_MPI_THREADS=$threads
  echo "$threads"
  for processes in 2 3; do
    run $processes "$program" "$usual"
  done
done
unset LOCKSTEP_MPI_THREADS
run 2 "$program" --initialize serialized '--gtest_filter=-MpiStart.*'
run 2 "$program" --initialize funneled '--gtest_filter=MpiStart.RejectsAProgram*'
