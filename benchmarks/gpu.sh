#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: what no other machine can check, and training beside other libraries.
#
#   benchmarks/gpu.sh check [BUILD]   the tests on the GPU, and again under each tool of compute-sanitizer
#   benchmarks/gpu.sh emulate [BUILD] the tests on a GPU that this machine's processors stand in for (an hour on two cores;
#                                     what they compiled is kept, and the next time takes a quarter of it)
#   benchmarks/gpu.sh time [BUILD]    seconds an epoch: ours, JAX's and PyTorch's where their Python packages are there
#   benchmarks/gpu.sh table [FILE]    the table of lines that `time` has kept, of standard input without a file
#
# BUILD is the folder of a build with its tests and benchmarks; build, if it is not given.
# Of the environment: GPU_LIMIT, the seconds a piece of a suite may take (1800); GPU_TOOLS, which tools (memcheck
# racecheck initcheck; plain: none of them); GPU_SUITES, which suites (all); GPU_JOBS, the pieces at a time (one for every
# two cores, of racecheck one for 24 GB of memory at most); GPU_CASES, GPU_PRECISIONS and GPU_BATCHES, what is timed (as
# of benchmarks/epochs.cc); GPU_PLATFORM, where ours is (cuda); GPU_LOGS, the folder for what is printed (BUILD/gpu).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

die() { echo "gpu.sh: $*" >&2; exit 2; }

# Suites, one a line: name, environment, program, tests, and in how many pieces. Those of training read MNIST from the
# cache. (racecheck loses track of kernels that several threads start: "failure to track a kernel launch". And some
# kernels of cuBLASLt's, nvjet_*, write by bulk copies behind barriers in memory, of which initcheck sees no write and
# racecheck no order: tests that are given one of those are left out. racecheck also keeps what it has followed for as
# long as a process lives, up to a GB in two seconds: more and smaller pieces for it.)
suites() {
  local race= bulk= more=1
  [ "$1" != racecheck ] || more=4
  [ "$1" != racecheck ] || race=-Jit.CallsFromSeveralThreadsAgree bulk=-NanOnGpu.IsHandedOn
  [ "$1" != initcheck ] || bulk=-NanOnGpu.IsHandedOn:EpiloguesOnGpu.TakeABiasThatLiesAnywhere
  cat <<END
lane LOCKSTEP_PLATFORM=cpu test_lane *Gpu* 1
plan LOCKSTEP_PLATFORM=cpu test_plan *Gpu*$bulk $((3 * more))
rows LOCKSTEP_CUDA_MATH=full test_rows *Gpu* $((2 * more))
comm LOCKSTEP_PLATFORM=cpu test_comm *Cuda*:*Nccl*:*Gpu* $((2 * more))
data LOCKSTEP_PLATFORM=cuda test_data *Loader* 1
train LOCKSTEP_PLATFORM=cuda test_train FitOnGpu.* 1
array LOCKSTEP_PLATFORM=cuda test_array *$race $((2 * more))
spmd LOCKSTEP_PLATFORM=cuda test_spmd * $((4 * more))
golden LOCKSTEP_PLATFORM=cuda test_training *olden* $((2 * more))
END
}

# A piece of a suite, under a tool or "plain"; writes a line of what came of it. (What the CUDA runtime answers is ours to
# check, and tests have it say no: memcheck is asked for accesses to memory.)
one() {
  local tool=$1 name=$2 variable=$3 program=$4 filter=$5 log=$6/$2.$1.log begin=$SECONDS status=0 said
  local command=("$program" "--gtest_filter=$filter")
  [ "$tool" = plain ] || command=("$sanitizer" --tool "$tool" --error-exitcode 99 "${command[@]}")
  [ "$tool" != memcheck ] || command=("$sanitizer" --report-api-errors no "${command[@]:1}")
  [ "$tool" = plain ] || command=(LOCKSTEP_BRIEF_TESTS=1 "${command[@]}")
  command=("${runner[@]}" env "$variable" "GTEST_TOTAL_SHARDS=$8" "GTEST_SHARD_INDEX=$7" "${command[@]}")
  timeout -k 10 "$limit" "${command[@]}" >"$log" 2>&1 || status=$?
  local passed skipped
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests\{0,1\}\..*/\1/p' "$log" | tail -1)
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) tests\{0,1\}, .*/\1/p' "$log" | tail -1)
  said="${passed:-0} passed${skipped:+, $skipped skipped}"
  if [ $status -eq 0 ] && [ "${passed:-0}" -eq 0 ]; then status=1 said="nothing ran: see $log"; fi
  case $status in
    0) ;;
    99) said="$(grep -c '^========= .*\(Invalid\|Uninitialized\|Race\|hazard\|Error\|error\)' "$log" || true) lines of findings: see $log" ;;
    124 | 137) said="not done after $limit s: see $log" ;;
    9) said="ended by a signal, perhaps for want of memory (fewer at a time: GPU_JOBS): see $log" ;;
    *) [ "$said" = "nothing ran: see $log" ] || said="FAILED ($status): see $log" ;;
  esac
  printf '%-8s %-10s %5d s  %s\n' "$name" "$tool" $((SECONDS - begin)) "$said"
  [ $status -eq 0 ] || touch "$6/failed"
}

check() {
  local logs=${GPU_LOGS:-$build/gpu} tools found
  limit=${GPU_LIMIT:-1800}
  sanitizer=$(command -v compute-sanitizer || true)
  found=${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer
  if [ -z "$sanitizer" ] && [ -x "$found" ]; then sanitizer=$found; fi
  # As they are first, and to the end, whatever the tools: that measures which of the libraries' kernels are to be used,
  # and remembers it. Under a tool every candidate would be tried, at its pace and in its memory, and the wrong one kept.
  read -ra tools <<<"${GPU_TOOLS:-memcheck racecheck initcheck}"
  local tool
  for tool in "${tools[@]}"; do
    case $tool in plain | memcheck | racecheck | initcheck) ;; *) die "GPU_TOOLS: no tool \"$tool\"; there are plain, memcheck, racecheck and initcheck" ;; esac
  done
  tools=(plain "${tools[@]/#plain/}")
  if [ -z "$sanitizer" ] && [ ${#runner[@]} -eq 0 ]; then
    echo "compute-sanitizer is not there: tests as they are only"
    tools=(plain)
  fi
  if [ ${#runner[@]} -gt 0 ]; then
    tools=(plain)
  else
    nvidia-smi -L >/dev/null 2>&1 || die "no NVIDIA GPU answers here (nvidia-smi -L); gpu.sh emulate needs none"
  fi
  mkdir -p "$logs"
  rm -f "$logs"/*.log "$logs/failed"
  local name variable program filter pieces piece jobs fit
  fit=$(awk '/^MemAvailable:/ {print int($2 / 24e6)}' /proc/meminfo)
  for tool in "${tools[@]}"; do
    [ -n "$tool" ] || continue
    jobs=${GPU_JOBS:-$((($(nproc) + 1) / 2))}
    if [ "$tool" = racecheck ] && [ -z "${GPU_JOBS:-}" ] && [ "$fit" -lt "$jobs" ]; then jobs=$((fit > 1 ? fit : 1)); fi
    while read -r name variable program filter pieces; do
      if [ -n "${GPU_SUITES:-}" ] && [[ " $GPU_SUITES " != *" $name "* ]]; then continue; fi
      if [ ! -x "$build/tests/$program" ]; then
        echo "$name: $build/tests/$program is not there" && touch "$logs/failed"
        continue
      fi
      for ((piece = 0; piece < pieces; ++piece)); do
        while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
        one "$tool" "$name$([ "$pieces" = 1 ] || echo "$((piece + 1))")" "$variable" "$build/tests/$program" "$filter" "$logs" "$piece" "$pieces" &
      done
    done < <(suites "$tool")
    [ "$tool" != plain ] || wait
  done
  wait
  [ ! -e "$logs/failed" ] || { echo "not all is well"; exit 1; }
  echo "all is well"
}

has() { python3 -c "import $1" 2>/dev/null; }

# One run, one library after the other, of the same cases.
measure() {
  local logs=${GPU_LOGS:-$build/gpu} lines
  local what=(--cases "${GPU_CASES:-mlp1024:sgd,mlp:adam,cnn:adam}" --precisions "${GPU_PRECISIONS:-f32,bf16}" --batches "${GPU_BATCHES:-128,8192}")
  [ -x "$build/benchmarks/epochs" ] || die "$build/benchmarks/epochs is not there; ./dev bench builds it"
  mkdir -p "$logs"
  lines=$logs/epochs.jsonl
  : >"$lines"
  keep() { sed -n "s/^{/{\"by\": \"$1\", /p" | tee -a "$lines"; }
  "$build/benchmarks/epochs" --platform "${GPU_PLATFORM:-cuda}" --forms step,index,loader,whole,fit "${what[@]}" | keep ours
  if has jax; then python3 "$here/neighbours/jax_mnist.py" "${what[@]}" 2>"$logs/jax.log" | keep jax; else echo "jax is not there"; fi
  if has torch; then python3 "$here/neighbours/torch_mnist.py" "${what[@]}" 2>"$logs/torch.log" | keep torch; else echo "torch is not there"; fi
  table "$lines"
}

table() {
  awk '
    function text(name) { return match($0, "\"" name "\": \"[^\"]*\"") ? substr($0, RSTART + length(name) + 5, RLENGTH - length(name) - 6) : "" }
    function number(name) { return match($0, "\"" name "\": [0-9.e-]+") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) + 0 : "" }
    function cell(x) { return x == "" ? "" : sprintf("%.4f", x) }
    function less(x, y) { return x == "" || (y != "" && y < x) ? y : x }
    function ratio(x, y) { return x == "" || y == "" ? "" : sprintf("%.2f", x / y) }
    {
      key = text("model") " " text("optimizer") " " text("precision") " | " number("batch")
      if (!(key in seen)) { seen[key] = 1; order[++count] = key }
      by = text("by")
      for (i = 1; i <= split("step index loader whole fit graph", forms, " "); ++i) {
        seconds = number(forms[i])
        if (seconds != "") took[forms[i], by, key] = seconds
      }
    }
    END {
      print "| case | batch | ours, in one scan | ours, a call a step | JAX, in one scan | the faster of ours, of that | PyTorch, CUDA graph |"
      print "| --- | --- | --- | --- | --- | --- | --- |"
      for (i = 1; i <= count; ++i) {
        k = order[i]
        printf "| %s | %s | %s | %s | %s | %s |\n", k, cell(took["whole", "ours", k]), cell(took["step", "ours", k]),
          cell(took["whole", "jax", k]), ratio(less(took["whole", "ours", k], took["step", "ours", k]), took["whole", "jax", k]),
          cell(took["graph", "torch", k])
      }
      print "\nA call a step, and how many times as long JAX takes: row numbers on the device, as an array each | taken from an array there | bytes from the host. The trainer."
      print "\n| case | batch | ours | JAX | times | ours | JAX | times | ours | JAX | times | ours, fit |"
      print "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
      for (i = 1; i <= count; ++i) {
        k = order[i]
        if (took["step", "jax", k] == "") continue
        printf "| %s |", k
        for (f = 1; f <= 3; ++f)
          printf " %s | %s | %s |", cell(took[forms[f], "ours", k]), cell(took[forms[f], "jax", k]), ratio(took[forms[f], "jax", k], took[forms[f], "ours", k])
        printf " %s |\n", cell(took["fit", "ours", k])
      }
    }' "${1:--}"
}

build=${2:-build}
runner=()
case ${1:-} in
  check) check ;;
  emulate)
    runner=("$here/../tests/emulated/run.sh" "$build")
    check
    ;;
  time) measure ;;
  table) table "${2:--}" ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; [ "${1:-}" = help ] || exit 2 ;;
esac
