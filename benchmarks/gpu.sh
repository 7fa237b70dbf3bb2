#!/usr/bin/env bash
# GPU tests, and training compared with other libraries, on a machine with an NVIDIA GPU.
#
#   benchmarks/gpu.sh check [BUILD]    runs the tests on the GPU, then again under each tool of compute-sanitizer
#   benchmarks/gpu.sh emulate [BUILD]  runs the tests on a GPU emulated by the CPU (an hour on two cores; compiled kernels
#                                      are cached, so the next run takes a quarter of that)
#   benchmarks/gpu.sh time [BUILD]     seconds per epoch, steps of GPTs, attention alone: ours, and JAX's and PyTorch's if
#                                      their Python packages are installed
#   benchmarks/gpu.sh table [FILE]     prints the table of results that `time` has stored (epochs.jsonl, gpt.jsonl,
#                                      attention.jsonl); default: standard input
#
# BUILD is a build folder with tests and benchmarks; default: build. Environment variables:
#   GPU_LIMIT       seconds that a part of a suite may take (1800)
#   GPU_TOOLS       tools to use (memcheck racecheck initcheck); plain: no tool
#   GPU_SUITES      suites to run (all)
#   GPU_JOBS        parts to run in parallel (one per two cores; for racecheck at most one per 24 GB of memory)
#   GPU_TIME        what to time (epochs gpt attention)
#   GPU_CASES, GPU_PRECISIONS, GPU_BATCHES   epochs: see benchmarks/epochs.cc
#   GPU_GPTS        GPTs, see benchmarks/gpt.cc (char:f32,char:bf16,gpt2:f32,gpt2:bf16)
#   GPU_LENGTHS     attention: lengths of sequences (1024,2048,4096,8192,16384,32768,65536)
#   GPU_PLATFORM    the platform of our own measurement and of GPTs (cuda)
#   GPU_LOGS        folder for the output (BUILD/gpu)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

die() { echo "gpu.sh: $*" >&2; exit 2; }

# Suites, one per line: name, environment, program, test filter, number of parts. Training suites read MNIST from the
# cache. Known problems of the tools:
# - racecheck fails for kernels that several threads launch ("failure to track a kernel launch").
# - Some kernels of cuBLASLt (nvjet_*) write with bulk copies behind barriers in memory. initcheck does not see these
#   writes, and racecheck does not see their order, so tests that use such a kernel are excluded.
# - racecheck keeps all its records for the lifetime of a process, up to a GB in two seconds, so it gets more and smaller
#   parts.
suites() {
  local race= bulk= float8= products= more=1
  [ "$1" != racecheck ] || more=4
  [ "$1" != racecheck ] || race=-Jit.CallsFromSeveralThreadsAgree bulk=-NanOnGpu.IsPropagated
  [ "$1" != initcheck ] || bulk=-NanOnGpu.IsPropagated:EpiloguesOnGpu.AcceptAnUnalignedBias float8=-Float8GemmOnGpu.* products=-*scaled_product
  cat <<END
lane LOCKSTEP_PLATFORM=cpu test_lane *Gpu*$float8 1
plan LOCKSTEP_PLATFORM=cpu test_plan *Gpu*$bulk $((3 * more))
rows LOCKSTEP_CUDA_MATH=full test_rows *Gpu*$products $((2 * more))
comm LOCKSTEP_PLATFORM=cpu test_comm *Cuda*:*Nccl*:*Gpu* $((2 * more))
data LOCKSTEP_PLATFORM=cuda test_data *Loader* 1
train LOCKSTEP_PLATFORM=cuda test_train FitOnGpu.* 1
array LOCKSTEP_PLATFORM=cuda test_array *$race $((2 * more))
spmd LOCKSTEP_PLATFORM=cuda test_spmd * $((4 * more))
golden LOCKSTEP_PLATFORM=cuda test_training *olden* $((2 * more))
conformance LOCKSTEP_PLATFORM=cuda test_conformance *Compiled* $((6 * more))
END
}

# Runs a part of a suite under a tool ("plain": without one), and prints its result as one line. memcheck does not report
# API errors, because tests provoke them on purpose.
run_part() {
  local tool=$1 name=$2 variable=$3 program=$4 filter=$5 log=$6/$2.$1.log begin=$SECONDS status=0 result
  local command=("$program" "--gtest_filter=$filter")
  [ "$tool" = plain ] || command=("$sanitizer" --tool "$tool" --error-exitcode 99 "${command[@]}")
  [ "$tool" != memcheck ] || command=("$sanitizer" --report-api-errors no "${command[@]:1}")
  [ "$tool" = plain ] || command=(LOCKSTEP_BRIEF_TESTS=1 "${command[@]}")
  command=("${runner[@]}" env "$variable" "GTEST_TOTAL_SHARDS=$8" "GTEST_SHARD_INDEX=$7" "${command[@]}")
  timeout -k 10 "$limit" "${command[@]}" >"$log" 2>&1 || status=$?
  local passed skipped
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests\{0,1\}\..*/\1/p' "$log" | tail -1)
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) tests\{0,1\}, .*/\1/p' "$log" | tail -1)
  result="${passed:-0} passed${skipped:+, $skipped skipped}"
  if [ $status -eq 0 ] && [ "${passed:-0}" -eq 0 ]; then status=1 result="no test ran: see $log"; fi
  case $status in
    0) ;;
    99) result="$(grep -c '^========= .*\(Invalid\|Uninitialized\|Race\|hazard\|Error\|error\)' "$log" || true) lines of findings: see $log" ;;
    124 | 137) result="timeout after $limit s: see $log" ;;
    9) result="killed, possibly out of memory (lower GPU_JOBS): see $log" ;;
    *) [ "$result" = "no test ran: see $log" ] || result="FAILED ($status): see $log" ;;
  esac
  printf '%-11s %-10s %5d s  %s\n' "$name" "$tool" $((SECONDS - begin)) "$result"
  [ $status -eq 0 ] || touch "$6/failed"
}

check() {
  local logs=${GPU_LOGS:-$build/gpu} tools found
  limit=${GPU_LIMIT:-1800}
  sanitizer=$(command -v compute-sanitizer || true)
  found=${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer
  if [ -z "$sanitizer" ] && [ -x "$found" ]; then sanitizer=$found; fi
  # Run the tests without a tool first, to completion. That run autotunes the kernels of the libraries and stores the
  # result. Under a tool every candidate would be slow, need much memory, and the wrong one would be chosen.
  read -ra tools <<<"${GPU_TOOLS:-memcheck racecheck initcheck}"
  local tool
  for tool in "${tools[@]}"; do
    case $tool in plain | memcheck | racecheck | initcheck) ;; *) die "GPU_TOOLS: unknown tool \"$tool\"; choose plain, memcheck, racecheck or initcheck" ;; esac
  done
  tools=(plain "${tools[@]/#plain/}")
  if [ -z "$sanitizer" ] && [ ${#runner[@]} -eq 0 ]; then
    echo "compute-sanitizer is not installed: running the tests without it"
    tools=(plain)
  fi
  if [ ${#runner[@]} -gt 0 ]; then
    tools=(plain)
  else
    nvidia-smi -L >/dev/null 2>&1 || die "no NVIDIA GPU found (nvidia-smi -L); gpu.sh emulate does not need one"
  fi
  mkdir -p "$logs"
  rm -f "$logs"/*.log "$logs/failed"
  local name variable program filter parts part jobs fit
  fit=$(awk '/^MemAvailable:/ {print int($2 / 24e6)}' /proc/meminfo)
  for tool in "${tools[@]}"; do
    [ -n "$tool" ] || continue
    jobs=${GPU_JOBS:-$((($(nproc) + 1) / 2))}
    if [ "$tool" = racecheck ] && [ -z "${GPU_JOBS:-}" ] && [ "$fit" -lt "$jobs" ]; then jobs=$((fit > 1 ? fit : 1)); fi
    while read -r name variable program filter parts; do
      if [ -n "${GPU_SUITES:-}" ] && [[ " $GPU_SUITES " != *" $name "* ]]; then continue; fi
      if [ ! -x "$build/tests/$program" ]; then
        echo "$name: $build/tests/$program is missing" && touch "$logs/failed"
        continue
      fi
      for ((part = 0; part < parts; ++part)); do
        while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
        run_part "$tool" "$name$([ "$parts" = 1 ] || echo "$((part + 1))")" "$variable" "$build/tests/$program" "$filter" "$logs" "$part" "$parts" &
      done
    done < <(suites "$tool")
    [ "$tool" != plain ] || wait
  done
  wait
  [ ! -e "$logs/failed" ] || { echo "some tests failed"; exit 1; }
  echo "all tests passed"
}

# Runs a Python neighbour, with its standard error in a log: neighbour PACKAGE LOG FILE ARGUMENTS...
neighbour() {
  local package=$1 log=$2 file=$3
  shift 3
  if ! python3 -c "import $package" 2>/dev/null; then
    echo "$package is not installed" >&2
  elif ! python3 "$here/neighbours/$file" "$@" 2>>"$log"; then
    echo "$file $*: failed, see $log" >&2
  fi
}

# Times the same cases with one library after the other. Each part stores its results as PART.jsonl.
measure() {
  local parts part
  logs=${GPU_LOGS:-$build/gpu}
  read -ra parts <<<"${GPU_TIME:-epochs gpt attention}"
  for part in "${parts[@]}"; do
    case $part in epochs | gpt | attention) ;; *) die "GPU_TIME: unknown part \"$part\"; choose epochs, gpt or attention" ;; esac
    [ -x "$build/benchmarks/$part" ] || die "$build/benchmarks/$part is missing; build it with ./dev bench"
  done
  mkdir -p "$logs"
  rm -f "$logs/jax.log" "$logs/torch.log"
  for part in "${parts[@]}"; do
    "measure_$part" | tee "$logs/$part.jsonl"
  done
  for part in "${parts[@]}"; do
    echo
    table "$logs/$part.jsonl"
  done
}

measure_epochs() {
  local what=(--cases "${GPU_CASES:-mlp1024:sgd,mlp:adam,cnn:adam}" --precisions "${GPU_PRECISIONS:-f32,bf16}" --batches "${GPU_BATCHES:-128,8192}")
  keep() { sed -n "s/^{/{\"by\": \"$1\", /p"; }
  "$build/benchmarks/epochs" --platform "${GPU_PLATFORM:-cuda}" --forms step,index,loader,whole,fit "${what[@]}" | keep ours
  neighbour jax "$logs/jax.log" jax_mnist.py "${what[@]}" | keep jax
  neighbour torch "$logs/torch.log" torch_mnist.py "${what[@]}" | keep torch
}

# Each case in a process of its own, because the memory of an earlier one would count.
measure_gpt() {
  local each platform=${GPU_PLATFORM:-cuda}
  for each in $(tr , ' ' <<<"${GPU_GPTS:-char:f32,char:bf16,gpt2:f32,gpt2:bf16}"); do
    "$build/benchmarks/gpt" --platform "$platform" --cases "$each" || true
    JAX_PLATFORMS=$platform neighbour jax "$logs/jax.log" gpt_jax.py --cases "$each"
    neighbour torch "$logs/torch.log" gpt_torch.py --cases "$each" --device "$platform"
  done
}

measure_attention() {
  local what=(--lengths "${GPU_LENGTHS:-1024,2048,4096,8192,16384,32768,65536}")
  "$build/benchmarks/attention" --platform cuda "${what[@]}"
  neighbour jax "$logs/jax.log" attention_jax.py "${what[@]}"
  neighbour torch "$logs/torch.log" attention_torch.py "${what[@]}"
}

# The table of results of any part.
table() {
  local lines
  lines=$(cat "${1:--}")
  case $lines in
    *'"tokens_per_s"'*) compare 'case precision' step_ms <<<"$lines" ;;
    *'"tflops"'*) compare 'length head_width pass' tflops <<<"$lines" ;;
    *) table_of_epochs <<<"$lines" ;;
  esac
}

# A row for each case, named by its first argument, with a column for each peer. The ratio is that of the times, ours to
# the fastest other peer.
compare() {
  awk -v keys="$1" -v value="$2" '
    function field(name) {
      if (match($0, "\"" name "\": \"[^\"]*\"")) return substr($0, RSTART + length(name) + 5, RLENGTH - length(name) - 6)
      return match($0, "\"" name "\": [0-9.e-]+") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) : ""
    }
    /^{/ {
      count = split(keys, names, " ")
      key = field(names[1])
      for (i = 2; i <= count; ++i) key = key " " field(names[i])
      peer = field("peer")
      if (!(key in known_keys)) { known_keys[key] = 1; rows[++row_count] = key }
      if (!(peer in known_peers)) { known_peers[peer] = 1; peers[++peer_count] = peer }
      shown[key, peer] = field(value)
    }
    END {
      printf "| %s, %s |", keys, value
      for (p = 1; p <= peer_count; ++p) printf " %s |", peers[p]
      print " time, lockstep / fastest other |"
      printf "| --- |"
      for (p = 0; p <= peer_count; ++p) printf " --- |"
      print ""
      for (r = 1; r <= row_count; ++r) {
        ours = best = ""
        printf "| %s |", rows[r]
        for (p = 1; p <= peer_count; ++p) {
          x = shown[rows[r], peers[p]]
          printf " %s |", x
          if (x + 0 <= 0) continue
          time = value == "tflops" ? 1 / x : x
          if (peers[p] == "lockstep") ours = time
          else if (peers[p] !~ /^lockstep/ && (best == "" || time < best)) best = time
        }
        printf " %s |\n", ours == "" || best == "" ? "" : sprintf("%.2f", ours / best)
      }
    }'
}

table_of_epochs() {
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
      print "| case | batch | ours, one scan | ours, call per step | JAX, one scan | our faster / JAX | PyTorch, CUDA graph |"
      print "| --- | --- | --- | --- | --- | --- | --- |"
      for (i = 1; i <= count; ++i) {
        k = order[i]
        printf "| %s | %s | %s | %s | %s | %s |\n", k, cell(took["whole", "ours", k]), cell(took["step", "ours", k]),
          cell(took["whole", "jax", k]), ratio(less(took["whole", "ours", k], took["step", "ours", k]), took["whole", "jax", k]),
          cell(took["graph", "torch", k])
      }
      print "\nOne call per step. The row numbers of a batch are (a) an array of their own on the device, (b) a slice of one array on the device; (c) the images are copied from the host. Last column: the trainer."
      print "\n| case | batch | (a) ours | JAX | JAX / ours | (b) ours | JAX | JAX / ours | (c) ours | JAX | JAX / ours | ours, fit |"
      print "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
      for (i = 1; i <= count; ++i) {
        k = order[i]
        if (took["step", "jax", k] == "") continue
        printf "| %s |", k
        for (f = 1; f <= 3; ++f)
          printf " %s | %s | %s |", cell(took[forms[f], "ours", k]), cell(took[forms[f], "jax", k]), ratio(took[forms[f], "jax", k], took[forms[f], "ours", k])
        printf " %s |\n", cell(took["fit", "ours", k])
      }
    }'
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
