#!/usr/bin/env bash
# Runs a complete Slurm on this machine: a controller, a slurmd for each node and a munged, all in one folder.
#
#   cluster.sh FOLDER NODE...     e.g. cluster.sh /tmp/c 127.0.0.1 127.0.0.2
#
# Prints "ready" when jobs can be submitted with SLURM_CONF=FOLDER/slurm.conf. Then executes one command per input line and
# answers each with "done":
#
#   kill NODE    kill slurmd of the node and all processes of its jobs
#   start NODE   start slurmd again
#
# Stops everything at the end of its input. Node names must resolve, because the processes of a job connect to process 0 by
# the name of its node; an address of this machine (127.0.0.2) works. Exit code 77: Slurm is missing or cannot run here; the
# last line is the reason.
set -uo pipefail

folder=$1
shift
nodes=("$@")
cpus=16 gpus=4          # of each node, independent of the machine
declare -A pid_of=()    # daemon -> process id

skip() {
  echo "$*"
  exit 77
}

PATH=$PATH:/usr/sbin:/sbin
for program in munged mungekey slurmctld slurmd sbatch scontrol; do
  command -v "$program" >/dev/null || skip "$program was not found; install the packages slurm-wlm and munge"
done

# Waits for a condition, at most $1 seconds.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if [ "$SECONDS" -ge "$end" ]; then return 1; fi
    sleep 0.1
  done
}

free_ports() {
  local found=() port
  while [ ${#found[@]} -lt "$1" ]; do
    port=$((20000 + RANDOM % 12000))
    if ! (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && [[ " ${found[*]-} " != *" $port "* ]]; then found+=("$port"); fi
  done
  echo "${found[@]}"
}

has_exited() { ! kill -0 "${pid_of[slurmctld]}" 2>/dev/null; }

stop() {
  local name pid
  if [ -n "${pid_of[slurmctld]-}" ] && ! has_exited; then
    scancel --quiet --state=PENDING,RUNNING,SUSPENDED 2>/dev/null
    wait_for 10 eval '[ -z "$(squeue -h 2>/dev/null)" ]'
  fi
  for name in "${nodes[@]}"; do kill_node "$name"; done
  for name in "${!pid_of[@]}"; do kill -TERM "${pid_of[$name]}" 2>/dev/null; done
  for name in "${!pid_of[@]}"; do
    pid=${pid_of[$name]}
    wait_for 5 eval "! kill -0 $pid" || kill -KILL "$pid"
    wait "$pid" 2>/dev/null
  done
}

start_node() {
  slurmd -D -N "$1" >>"$folder/slurmd_$1.log" 2>&1 </dev/null &
  pid_of[$1]=$!
}

environment_of() { tr '\0' '\n' <"/proc/$1/environ"; }

# Kills slurmd of a node, slurmstepd and the processes of the job steps.
kill_node() {
  local entry pid parent
  if [ -n "${pid_of[$1]-}" ]; then
    kill -KILL "${pid_of[$1]}"
    wait "${pid_of[$1]}"
    unset "pid_of[$1]"
  fi
  for entry in /proc/[0-9]*; do
    pid=${entry#/proc/}
    if [ "$(environment_of "$pid" | grep -cxF -e "SLURMD_NODENAME=$1" -e "SLURM_CONF=$SLURM_CONF")" -ge 2 ]; then
      parent=$(awk '/^PPid:/ {print $2}' "$entry/status")
      if [[ $(tr '\0' ' ' <"/proc/$parent/cmdline") == slurmstepd:* ]]; then kill -KILL "$parent"; fi
      kill -KILL "$pid"
    fi
  done
} 2>/dev/null

mkdir -p "$folder/state" "$folder/run" || exit 1
chmod 755 "$folder" "$folder/run"
export SLURM_CONF=$folder/slurm.conf

# munged with a separate key and socket.
mungekey --create --keyfile="$folder/munge.key" || exit 1
munged --foreground --force --num-threads=2 --key-file="$folder/munge.key" --socket="$folder/run/munge.socket" \
  --pid-file="$folder/run/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed" \
  </dev/null >"$folder/munged.out" 2>&1 &
pid_of[munged]=$!
trap stop EXIT
wait_for 10 munge -n -S "$folder/run/munge.socket" || skip "munged does not start: $(tail -n 1 "$folder/munged.out")"

user=$(id -un)
host=$(hostname -s 2>/dev/null || hostname)
read -r -a ports <<<"$(free_ports $((${#nodes[@]} + 1)))"
{
  cat <<TEXT
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool_%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd_%n.pid
SlurmctldTimeout=30
SlurmdTimeout=60
MessageTimeout=10
InactiveLimit=0
KillWait=5
MinJobAge=600
ReturnToService=2
# Works without cgroups and with more CPUs than the machine has.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
# Jobs of the partition "urgent" preempt others; those of "graceful" get SIGTERM one minute before.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
TEXT
  for i in "${!nodes[@]}"; do
    echo "NodeName=${nodes[$i]} NodeAddr=127.0.0.1 NodeHostname=$host Port=${ports[$((i + 1))]} CPUs=$cpus RealMemory=1000 Gres=gpu:$gpus Feature=a100 State=UNKNOWN"
  done
  echo "PartitionName=main Nodes=ALL Default=YES PriorityTier=1"
  echo "PartitionName=graceful Nodes=ALL PriorityTier=1 GraceTime=60"
  echo "PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF"
} >"$folder/slurm.conf"
# Older versions cannot disable the cgroup plugin; cgroup/v1 does nothing unless it is used.
case $(slurmd -V) in
  *" 2"[0-2].* | *" 23.02"*) echo "CgroupPlugin=cgroup/v1" ;;
  *) echo "CgroupPlugin=disabled" ;;
esac >"$folder/cgroup.conf"
# Fake GPUs, which Slurm only counts: device files that exist on every machine.
for device in null zero full random; do echo "Name=gpu File=/dev/$device"; done >"$folder/gres.conf"

slurmctld -D -c >"$folder/slurmctld.log" 2>&1 </dev/null &
pid_of[slurmctld]=$!
for name in "${nodes[@]}"; do
  mkdir -p "$folder/spool_$name"
  start_node "$name"
done
all_idle() { [ "$(sinfo -h -N -o '%N %T' | sort -u | grep -c ' idle$')" -eq ${#nodes[@]} ]; }
wait_for 60 eval 'has_exited || all_idle'
if has_exited; then skip "slurmctld does not start: $(tail -n 1 "$folder/slurmctld.log")"; fi
if ! all_idle; then
  tail -n 5 "$folder"/slurm*.log >&2
  skip "the nodes of Slurm do not come up: $(sinfo -h -N -o '%N %T' 2>&1 | tr '\n' ' ')"
fi

echo "ready"
while read -r word name; do
  case $word in
    kill) kill_node "$name" ;;
    start) start_node "$name" ;;
    *) echo "cluster.sh: unknown command \"$word\"" >&2 ;;
  esac
  echo "done"
done
