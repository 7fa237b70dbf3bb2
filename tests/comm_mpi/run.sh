#!/bin/sh
# Runs the test program under mpirun with 1 to 8 processes: run.sh PROGRAM. Skipped where there is no mpirun.
program=$1
if ! command -v mpirun > /dev/null; then
  echo "skipped: there is no mpirun; install openmpi-bin"
  exit 77
fi
# As root, on more ranks than cores, and on this machine only.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1
run() {
  echo "on $*"
  timeout 120 mpirun -n "$@" --gtest_brief=1 || exit 1
}
usual=--gtest_filter=-MpiStart.AProgram*
for processes in 1 2 3 4 7 8; do
  run $processes "$program" "$usual"
done
# The first group of a process is one of its own kind: each check once more, with that.
for check in $("$program" --gtest_list_tests --gtest_filter='Mpi/*' | sed -n 's/^  \([A-Za-z/0-9]*\).*/\1/p'); do
  run 2 "$program" "--gtest_filter=Mpi/*.$check"
done
# Where MPI allows less than calls from all threads, because it was asked for less, or because the program did.
for threads in serialized funneled; do
  export LOCKSTEP_MPI_THREADS=$threads
  echo "$threads"
  for processes in 2 3; do
    run $processes "$program" "$usual"
  done
done
unset LOCKSTEP_MPI_THREADS
run 2 "$program" --initialize serialized '--gtest_filter=-MpiStart.*'
run 2 "$program" --initialize funneled '--gtest_filter=MpiStart.AProgram*'
