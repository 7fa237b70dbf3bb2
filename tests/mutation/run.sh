#!/usr/bin/env bash
# run.sh BUILD [FOLDER] [N] [SEED]: changes one operator of src/FOLDER at a time, at N random places, and runs the folder's own
# tests on each change. A change that no test notices survives; the table lists them. Called by `./dev mutate`.
#
# Sources are changed in place and restored, also when the script is interrupted; it refuses to start on files with changes
# that are not committed. A change that does not compile is drawn again. Survivors are not always missing tests: some
# changes have no effect.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$1 folder=${2:-all} count=${3:-10} seed=${4:-$RANDOM}
limit=${MUTATE_LIMIT:-300}  # seconds that the tests of one change may take

die() { echo "mutate: $*" >&2; exit 2; }

[[ $count =~ ^[1-9][0-9]*$ ]] || die "the number of changes is \"$count\"; give a number from 1 on"
[[ $seed =~ ^[0-9]+$ ]] || die "the seed is \"$seed\"; give a number"
[ "$folder" = all ] || [ -d "src/$folder" ] || die "there is no folder src/$folder; folders: $(ls src | grep -v CMake | tr '\n' ' ')or all"
[ -f "$build/build.ninja" ] || die "$build has no build; run ./dev build first"
where=src/$folder
[ "$folder" != all ] || where=src
git diff --quiet HEAD -- "$where" || die "$where has changes that are not committed; commit or stash them first"

# The test programs that exercise a folder, fastest first. They also run with several lanes where ctest has that.
suites_of() {
  case $1 in
    array) echo array spmd ;;
    ops) echo ops rows ;;
    passes) echo passes rows ;;
    jobs) echo jobs jobs_model jobs_local ;;
    *) echo "$1" ;;
  esac
}

# Every place that can be changed, one a line: file, line, column, what it is, what it becomes. Comments, strings,
# preprocessor lines and what needs hardware or a cluster are left out.
places() {
  find "$where" -name '*.cc' -not -path '*/cuda/*' -not -path '*/grpc/*' -not -path '*/mpi/*' -not -path '*/slurm/*' \
    -not -path '*/kubernetes/*' -not -name 'gemm_half_*' | sort | xargs awk '
    BEGIN {
      n = 0
      add(" < ", " <= "); add(" <= ", " < "); add(" > ", " >= "); add(" >= ", " > "); add(" == ", " != "); add(" != ", " == ")
      add(" && ", " || "); add(" || ", " && "); add(" + 1", ""); add(" - 1", ""); add("true", "false"); add("false", "true")
    }
    function add(a, b) { n++; from[n] = a; to[n] = b }
    /^ *#/ || /^ *\/\// || /template *</ { next }
    {
      line = $0
      masked = ""
      inside = 0
      for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (!inside && substr(line, i, 2) == "//") break
        if (c == "\\" && inside) { masked = masked "xx"; i++; continue }
        if (c == "\"") { inside = !inside; masked = masked "x"; continue }
        masked = masked (inside ? "x" : c)
      }
      for (k = 1; k <= n; k++) {
        start = 1
        while ((at = index(substr(masked, start), from[k])) > 0) {
          column = start + at - 1
          start = column + length(from[k])
          after = substr(masked, start, 1)
          before = column > 1 ? substr(masked, column - 1, 1) : " "
          if ((from[k] == "true" || from[k] == "false") && (after ~ /[A-Za-z0-9_]/ || before ~ /[A-Za-z0-9_]/)) continue
          if ((from[k] == " + 1" || from[k] == " - 1") && after ~ /[0-9.eE]/) continue
          printf "%s\t%d\t%d\t%s\t%s\n", FILENAME, FNR, column, from[k], to[k]
        }
      }
    }'
}

changed=
restore() {
  if [ -n "$changed" ]; then git checkout -q -- "$changed"; fi
  changed=
}
trap restore EXIT
trap 'exit 130' INT TERM

mutate() {  # FILE LINE COLUMN FROM TO
  changed=$1
  awk -v number="$2" -v column="$3" -v from="$4" -v to="$5" '
    NR == number { $0 = substr($0, 1, column - 1) to substr($0, column + length(from)) } { print }' "$1" >"$1.mutant"
  cat "$1.mutant" >"$1"
  rm "$1.mutant"
}

all=$(mktemp)
survivors=$(mktemp)
log=$(mktemp)
trap 'restore; rm -f "$all" "$survivors" "$log"' EXIT
places >"$all"
[ -s "$all" ] || die "$where has nothing to change"
echo "mutate: $(wc -l <"$all") places in $where, $count of them, seed $seed (again: ./dev mutate $folder $count $seed)"
RANDOM=$seed
done=0 tried=0
while [ "$done" -lt "$count" ] && [ "$tried" -lt $((count * 3)) ]; do
  tried=$((tried + 1))
  number=$(((RANDOM * 32768 + RANDOM) % $(wc -l <"$all") + 1))
  IFS=$'\t' read -r file line column from to < <(sed -n "${number}p" "$all")
  own=${file#src/}
  own=${own%%/*}
  read -ra suites <<<"$(suites_of "$own")"
  before=$(sed -n "${line}p" "$file" | sed 's/^ *//')
  mutate "$file" "$line" "$column" "$from" "$to"
  after=$(sed -n "${line}p" "$file" | sed 's/^ *//')
  verdict=caught
  if ! cmake --build "$build" --target "${suites[@]/#/test_}" >"$log" 2>&1; then
    restore
    continue
  fi
  done=$((done + 1))
  code=0
  timeout "$limit" ctest --test-dir "$build" -R "^($(IFS='|'; echo "${suites[*]}"))(_on_[0-9]+_lanes)?\$" --stop-on-failure >"$log" 2>&1 </dev/null || code=$?
  if [ $code -eq 0 ]; then
    verdict=SURVIVED
    printf '%s:%s\n  was     %s\n  became  %s\n' "$file" "$line" "$before" "$after" >>"$survivors"
  fi
  printf '%-9s %s:%s  %s -> %s\n' "$verdict" "$file" "$line" "\"$from\"" "\"$to\""
  restore
done
echo
echo "$done changes, $(grep -c '^  was' "$survivors" || true) survived"
cat "$survivors"
