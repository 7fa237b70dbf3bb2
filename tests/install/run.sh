#!/usr/bin/env bash
# run.sh BUILD_DIR [CXX]: installs the build into a temporary folder, builds consumer/ against it alone, and checks what both print.
set -euo pipefail
build=${1:?usage: run.sh BUILD_DIR [CXX]}
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
expect "$("$work/prefix/bin/lockstep" version)" "lockstep $version"
