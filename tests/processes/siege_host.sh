#!/bin/bash
# Starts jobs on one host while another user attacks all that their processes share, and beside the same load of threads
# that only compute. Compares times and weights.
#
#   tests/processes/siege_host.sh BUILD [STARTS [MODES]]
#
# STARTS jobs (default 50) of 1 to 16 processes. MODES of the attacker (tests/processes/programs/stranger.cc) default to
# Unix sockets, files and memory, and connections to all ports. A start passes if it takes at most 1.5 times as long as
# beside that load; a pair of times is measured up to three times, because a busy machine disturbs single ones. Prints a
# table. Exits with 0 if all starts have passed and have equal weights. Needs root, for another user and for a network
# namespace, so that nothing else on the machine is attacked.
set -u
if [ -z "${SIEGE_INSIDE:-}" ]; then
  exec env SIEGE_INSIDE=1 unshare --net -- bash -c 'ip link set lo up && exec "$0" "$@"' "$0" "$@"
fi
build=$(realpath "${1:?the build folder}")
starts=${2:-50}
modes=${3:-sockets,files,memory,touch,idle,garbage,half}
spin=$(sed 's/[^,]*/spin/g' <<< "$modes")
folder=$(mktemp -d)
stranger="$folder/stranger"
install -m 755 "$build/tests/process_stranger" "$stranger"
chmod 755 "$folder"
trap 'rm -rf "$folder"' EXIT

# Milliseconds of processor time that a process has used.
used() { awk '{ sub(/.*\) /, ""); print ($12 + $13) * 10 }' "/proc/$1/stat"; }

# run NAME PROCESSES MODES DUTY: a job beside the stranger, which is there before it. Prints the milliseconds of the job,
# its exit code and the milliseconds that the stranger used.
run() {
  : > "$folder/stranger.log"
  setpriv --reuid 65534 --regid 65534 --clear-groups "$stranger" --uid "$(id -u)" --seconds 100000 --most 1000000000 \
    --modes "$3" --duty "$4" > "$folder/stranger.$1" 2> "$folder/stranger.log" &
  local attacker=$! begin end code before after
  until grep -q attacking "$folder/stranger.log"; do sleep 0.01; done
  before=$(used $attacker)
  begin=$(date +%s%N)
  timeout 300 "$build/lockstep" launch -n "$2" -- train --model mlp --dataset synthetic --steps 5 --batch-size 240 \
    --quiet --checkpoint-dir "$folder/$1" > "$folder/$1.log" 2>&1
  code=$?
  end=$(date +%s%N)
  after=$(used $attacker)
  kill "$attacker" 2> /dev/null
  wait "$attacker" 2> /dev/null
  echo "$(((end - begin) / 1000000)) $code $((after - before))"
}

# Prints the sum of all arrays of the checkpoint.
weights() { (cd "$folder/$1" 2> /dev/null && find . -name '*.safetensors' | sort | xargs cat | sha256sum); }

echo "| start | processes | beside computing, s | attacked, s | ratio | processors used by the attack | exit | byte-equal |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
threads=$(tr ',' '\n' <<< "$modes" | wc -l)
failed=0
for i in $(seq "$starts"); do
  processes=$(((i - 1) % 16 + 1))
  for attempt in 1 2 3; do
    rm -rf "$folder/calm" "$folder/attacked"
    read -r attacked code load < <(run attacked $processes "$modes" 100)
    cat "$folder/stranger.attacked" >> "$folder/strangers"
    duty=$((load * 100 / attacked / threads))
    read -r calm calm_code _ < <(run calm $processes "$spin" $((duty > 100 ? 100 : duty)))
    [ "$calm_code" = 0 ] || { cat "$folder/calm.log"; exit 1; }
    equal=no
    [ "$(weights calm)" = "$(weights attacked)" ] && equal=yes
    passed=no
    [ "$code" = 0 ] && [ $equal = yes ] && [ $((attacked * 2)) -le $((calm * 3)) ] && passed=yes
    awk -v i="$i" -v n="$processes" -v c="$calm" -v a="$attacked" -v load="$load" -v code="$code" -v equal="$equal" \
      'BEGIN { printf "| %d | %d | %.2f | %.2f | %.2f | %.1f | %d | %s |\n", i, n, c / 1000, a / 1000, a / c, load / a, code, equal }'
    [ "$code" = 0 ] || tail -3 "$folder/attacked.log"
    [ $passed = yes ] && break
  done
  [ $passed = yes ] || failed=$((failed + 1))
done
echo
echo "failed: $failed of $starts; connections made and files opened by strangers:"
awk '{ sum[$1] += $2 } END { for (mode in sum) print "  " mode, sum[mode] }' "$folder/strangers" | sort
[ "$failed" = 0 ]
