#!/usr/bin/env bash
# run.sh BUILD SECONDS [TARGET...]: runs fuzz targets with libFuzzer, as many at a time as there are processors, and
# prints a table. Exits with 1 when one of them has found something. Called by `./dev fuzz`.
#
# What a target finds interesting is kept in BUILD/corpus/TARGET, and used by the next run; inputs that crash are in
# BUILD/findings/TARGET.
set -euo pipefail
build=$1 seconds=$2
shift 2
source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=16:detect_stack_use_after_return=0:allocator_may_return_null=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$source/../lsan.supp:print_suppressions=0}

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  # Those with a source: a build folder may also hold the program of a target that was removed.
  for program in "$build"/targets/*; do
    target=$(basename "$program")
    if [ -f "$source/$target.cc" ]; then targets+=("$target"); fi
  done
fi

options_of() {
  echo -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=512 -max_len=16384 -print_final_stats=1
  if [ -f "$source/dictionaries/$1.dict" ]; then echo "-dict=$source/dictionaries/$1.dict"; fi
}

run_target() {
  local target=$1 findings="$build/findings/$1" corpus="$build/corpus/$1"
  mkdir -p "$findings" "$corpus"
  # shellcheck disable=SC2046
  "$build/targets/$target" $(options_of "$target") -artifact_prefix="$findings/" "$corpus" "$source/corpus/$target" \
    >"$build/$target.log" 2>&1 </dev/null || echo $? >"$build/$target.failed"
}

trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
running=0
for target in "${targets[@]}"; do
  rm -f "$build/$target.failed"
  if [ "$running" -ge "$(nproc)" ]; then
    wait -n
    running=$((running - 1))
  fi
  run_target "$target" &
  running=$((running + 1))
done
wait

found=0
printf '%-20s %10s %8s %8s %8s  %s\n' target inputs "inputs/s" edges corpus finding
for target in "${targets[@]}"; do
  log="$build/$target.log"
  inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  kept=$(find "$build/corpus/$target" -type f | wc -l)
  finding=none
  if [ -f "$build/$target.failed" ]; then
    found=1
    finding=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    finding=${finding:-see $log}
  fi
  printf '%-20s %10s %8s %8s %8s  %s\n' "$target" "${inputs:--}" "${rate:--}" "${edges:--}" "$kept" "$finding"
done
if [ "$found" -ne 0 ]; then
  echo
  for target in "${targets[@]}"; do
    if [ ! -f "$build/$target.failed" ]; then continue; fi
    input=$(sed -n 's/.*Test unit written to //p' "$build/$target.log" | tail -n 1)
    grep -m 1 -E 'ERROR: |runtime error|property violated|internal error|terminate called|SUMMARY' "$build/$target.log" || true
    echo "  reproduce: $build/targets/$target ${input:-"(no input was kept; see $build/$target.log)"}"
  done
fi
exit "$found"
