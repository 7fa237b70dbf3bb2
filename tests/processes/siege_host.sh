#!/bin/bash
# Starts jobs on one host while another user attacks all that their processes share, and beside as many threads that only
# compute. Compares times and weights.
#
#   tests/processes/siege_host.sh BUILD [STARTS [MODES]]
#
# STARTS jobs (default 50) of 1 to 16 processes. MODES of the attacker (tests/processes/programs/stranger.cc) default to
# Unix sockets, files and memory, and connections to all ports. A start passes if it takes at most 1.5 times as long as
# without attack; a pair of times is measured up to three times, because a busy machine disturbs single ones. Prints a
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

# run NAME PROCESSES MODES: a job beside the stranger, which is there before it. Prints its seconds and exit code.
run() {
  setpriv --reuid 65534 --regid 65534 --clear-groups "$stranger" --uid "$(id -u)" --seconds 100000 --most 1000000000 \
    --modes "$3" > "$folder/stranger.$1" 2> "$folder/stranger.log" &
  local attacker=$! begin end code
  until grep -q attacking "$folder/stranger.log"; do sleep 0.01; done
  begin=$(date +%s%N)
  timeout 300 "$build/lockstep" launch -n "$2" -- train --model mlp --dataset synthetic --steps 5 --batch-size 240 \
    --quiet --checkpoint-dir "$folder/$1" > "$folder/$1.log" 2>&1
  code=$?
  end=$(date +%s%N)
  kill "$attacker" 2> /dev/null
  wait "$attacker" 2> /dev/null
  echo "$(((end - begin) / 1000000)) $code"
}

# Prints the sum of all arrays of the checkpoint.
weights() { (cd "$folder/$1" 2> /dev/null && find . -name '*.safetensors' | sort | xargs cat | sha256sum); }

echo "| start | processes | beside computing, s | attacked, s | ratio | exit | byte-equal |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
failed=0
for i in $(seq "$starts"); do
  processes=$(((i - 1) % 16 + 1))
  for attempt in 1 2 3; do
    rm -rf "$folder/calm" "$folder/attacked"
    read -r calm code < <(run calm $processes "$spin")
    [ "$code" = 0 ] || { cat "$folder/calm.log"; exit 1; }
    read -r attacked code < <(run attacked $processes "$modes")
    cat "$folder/stranger.attacked" >> "$folder/strangers"
    equal=no
    [ "$(weights calm)" = "$(weights attacked)" ] && equal=yes
    passed=no
    [ "$code" = 0 ] && [ $equal = yes ] && [ $((attacked * 2)) -le $((calm * 3)) ] && passed=yes
    awk -v i="$i" -v n="$processes" -v c="$calm" -v a="$attacked" -v code="$code" -v equal="$equal" \
      'BEGIN { printf "| %d | %d | %.2f | %.2f | %.2f | %d | %s |\n", i, n, c / 1000, a / 1000, a / c, code, equal }'
    [ "$code" = 0 ] || tail -3 "$folder/attacked.log"
    [ $passed = yes ] && break
  done
  [ $passed = yes ] || failed=$((failed + 1))
done
echo
echo "failed: $failed of $starts; connections made and files opened by strangers:"
awk '{ sum[$1] += $2 } END { for (mode in sum) print "  " mode, sum[mode] }' "$folder/strangers" | sort
[ "$failed" = 0 ]
