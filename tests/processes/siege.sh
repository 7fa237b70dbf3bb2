#!/bin/bash
# Attacks jobs as another user and compares what they compute with a job that was left alone.
#
#   tests/processes/siege.sh BUILD [STARTS [SECONDS [WHERE]]]
#
# STARTS short jobs are attacked from their start (default 100), then one job for SECONDS (default 1200), which is repeated
# in peace with as many steps. WHERE: `data` (default), the ports that processes connect to each other by; `coordinator`,
# the port of process 0; or both, `all`.
# Needs root, for another user. Everything listens at the loopback.
set -u
build=$(realpath "${1:?the build folder}")
starts=${2:-100} seconds=${3:-1200} where=${4:-data}
port=${SIEGE_PORT:-38111}
folder=$(mktemp -d)
stranger="$folder/stranger"
install -m 755 "$build/tests/process_stranger" "$stranger"
chmod 755 "$folder"
trap 'rm -rf "$folder"' EXIT

data_modes=touch,idle,garbage,ones,preamble,forged,half,slow
coordinator_modes=rapid,bodies,tls

attackers=()
# Attacks as user 65534 until end_attack.
attack() {
  local as=(setpriv --reuid 65534 --clear-groups "$stranger" --uid "$(id -u)" --seconds 100000 --most 1000000000)
  attackers=()
  if [ "$where" != coordinator ]; then
    "${as[@]}" --except "$port" --modes $data_modes >> "$folder/strangers" 2>&1 & attackers+=($!)
  fi
  if [ "$where" != data ]; then
    "${as[@]}" --port "$port" --modes $coordinator_modes >> "$folder/strangers" 2>&1 & attackers+=($!)
  fi
}
end_attack() {
  kill "${attackers[@]}" 2> /dev/null
  wait "${attackers[@]}" 2> /dev/null
}

# watch PID SECONDS: waits for a launcher, and ends it after that time. Prints the largest memory process 0 has used, in
# kB, and the launcher's exit code.
watch() {
  local peak=0 now child end=$((SECONDS + $2))
  while kill -0 "$1" 2> /dev/null; do
    [ "$SECONDS" -lt "$end" ] || kill -9 "$1"  # its processes end with it
    for child in $(pgrep -P "$1"); do
      grep -qzx LOCKSTEP_PROCESS_ID=0 "/proc/$child/environ" 2> /dev/null || continue
      now=$(awk '/VmHWM/ { print $2 }' "/proc/$child/status" 2> /dev/null)
      [ "${now:-0}" -gt "$peak" ] && peak=$now
    done
    sleep 0.1
  done
  wait "$1"
  echo "$peak $?"
}

# run NAME STEPS SECONDS [STOP]: a job of three processes, which is asked to stop after STOP seconds; prints what watch
# does. A job that stops saves a checkpoint.
run() {
  "$build/lockstep" launch -n 3 --port "$port" --collectives tcp -- train --model mlp --dataset synthetic --steps "$2" \
    --schedule constant --quiet --checkpoint-dir "$folder/$1" > "$folder/$1.log" 2>&1 &
  local launcher=$!
  if [ -n "${4:-}" ]; then
    (sleep "$4"; kill -TERM $launcher) > /dev/null &
  fi
  watch $launcher "$3"
}

# The newest checkpoint of a run: step_00000020.
newest() { ls "$folder/$1" | grep '^step_' | sort -V | tail -1; }

# Prints the sums of all arrays of the newest checkpoint.
weights() {
  (cd "$folder/$1/$(newest "$1")" 2> /dev/null && cat -- *.safetensors | sha256sum)
}

read -r quiet_peak code < <(run quiet 20 120)
[ "$code" = 0 ] || { cat "$folder/quiet.log"; exit 1; }
wanted=$(weights quiet)
finished=0 equal=0 peak=0
for i in $(seq "$starts"); do
  attack
  read -r now code < <(run "start$i" 20 120)
  end_attack
  if [ "$code" = 0 ]; then finished=$((finished + 1)); else tail -3 "$folder/start$i.log"; fi
  [ "$(weights "start$i")" = "$wanted" ] && equal=$((equal + 1))
  [ "$now" -gt "$peak" ] && peak=$now
  rm -rf "$folder/start$i"
done

long_text="not run" long_equal=yes
if [ "$seconds" -gt 0 ]; then
  attack
  read -r long_peak code < <(run long 1000000000 $((seconds + 300)) "$seconds")
  end_attack
  steps=$(newest long)
  steps=$((10#0${steps#step_}))
  # The same number of steps in peace.
  run again "$steps" $((seconds + 300)) > /dev/null
  if [ "$steps" -eq 0 ] || [ "$(weights long)" != "$(weights again)" ]; then
    long_equal=no
    tail -3 "$folder/long.log" "$folder/again.log"
  fi
  long_text="stopped with exit $code after $seconds s and $steps steps, byte-equal: $long_equal, process 0 at most $((long_peak / 1024)) MiB"
  [ "$long_peak" -gt "$peak" ] && peak=$long_peak
fi

echo "| attack | starts | finished | byte-equal | process 0 in peace, MiB | attacked, MiB | long run |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
echo "| $where | $starts | $finished | $equal | $((quiet_peak / 1024)) | $((peak / 1024)) | $long_text |"
echo
echo "connections made by strangers:"
awk '{ sum[$1] += $2 } END { for (mode in sum) print "  " mode, sum[mode] }' "$folder/strangers" | sort
[ "$finished" = "$starts" ] && [ "$equal" = "$starts" ] && [ $long_equal = yes ] && [ $((peak - quiet_peak)) -le 65536 ]
