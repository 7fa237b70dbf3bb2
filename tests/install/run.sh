#!/usr/bin/env bash
# run.sh BUILD_DIR [CXX]: installs the build into a temporary folder, builds consumer/ and a project of `lockstep new` against it alone, and
# checks what they print. Then uninstalls it.
set -euo pipefail
build=$(realpath "${1:?usage: run.sh BUILD_DIR [CXX]}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || {
  cat "$work/install.log"
  exit 1
}
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
cmake -S "$here/consumer" -B "$work/consumer" "${generator[@]}" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release \
  ${2:+-DCMAKE_CXX_COMPILER="$2"}
cmake --build "$work/consumer"

expect() {
  if [ "$1" != "$2" ]; then
    echo "expected \"$2\", got \"$1\""
    exit 1
  fi
}
expect "$("$work/consumer/consumer")" 45
version=$(sed -n 's/#define LOCKSTEP_VERSION "\(.*\)"/\1/p' "$work/prefix/include/lockstep/version.h")
expect "$("$work/prefix/bin/lockstep" --version)" "lockstep $version"

# A project of `lockstep new` builds and trains, alone and under `lockstep launch`.
lockstep=$work/prefix/bin/lockstep
project=$work/my_wave
"$lockstep" new my_wave --dir "$project"
cmake -S "$project" -B "$project/build" "${generator[@]}" -DCMAKE_PREFIX_PATH="$work/prefix" ${2:+-DCMAKE_CXX_COMPILER="$2"}
cmake --build "$project/build"
cd "$project"
expect "$(build/my_wave --version)" "my_wave (lockstep $version)"
build/my_wave settings.yaml --epochs 2 --quiet --expect 'test_loss<0.2' | tee one.txt
grep -q '^wave test loss 0\.[0-9]* after 158 steps (2 epochs)' one.txt
build/my_wave eval run | tee eval.txt
grep -q '^test_loss 0\.[0-9]* test_abs_error 0\.[0-9]* examples 1000$' eval.txt
build/my_wave inspect run | grep -q '^  hidden: 64$'
# Several processes need the control plane, which is an optional feature.
if "$lockstep" launch -n 2 -- allreduce >/dev/null 2>&1; then
  "$lockstep" launch -n 2 -- build/my_wave settings.yaml --epochs 2 --quiet --checkpoint-dir two | tee two.txt
  grep -q '^\[0\] wave test loss 0\.[0-9]* after 158 steps (2 epochs)' two.txt
  build/my_wave eval two | grep -q '^test_loss 0\.'
fi

# Nothing remains of an installation.
cmake -P "$build/lockstep_uninstall.cmake" 2>&1 | tee uninstall.txt
grep -q 'uninstall: removed [0-9]* files' uninstall.txt
expect "$(find "$work/prefix" -type f)" ""
expect "$(find "$work/prefix" -name 'lockstep*')" ""
if cmake -P "$build/lockstep_uninstall.cmake" 2>uninstall.txt; then exit 1; fi
grep -q 'so nothing was installed from this folder; nothing is removed' <(tr -s ' \n' ' ' <uninstall.txt)
