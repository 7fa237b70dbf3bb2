#!/usr/bin/env bash
# Builds the image with podman, docker or buildah and prints its size.
#
# usage: [JOBS=N] build.sh [--cuda] [NAME]        NAME: lockstep:VERSION, with --cuda lockstep:VERSION-cuda
#                                                JOBS: parallel compile jobs; default: one per core
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

file=deploy/containers/Containerfile
suffix=
if [ "${1:-}" = --cuda ]; then
  file=deploy/containers/Containerfile.cuda
  suffix=-cuda
  shift
fi
version=$(sed -n 's/^#define LOCKSTEP_VERSION "\(.*\)"/\1/p' include/lockstep/version.h)
name=${1:-lockstep:$version$suffix}

for engine in podman docker buildah; do
  if ! command -v "$engine" >/dev/null; then continue; fi
  "$engine" build --build-arg "JOBS=${JOBS:-}" -f "$file" -t "$name" .
  if [ "$engine" = buildah ]; then
    size=$(buildah images --format '{{.Size}}' "$name")
  else
    size=$("$engine" image inspect --format '{{.Size}}' "$name" | awk '{ printf "%.0f MiB", $1 / 1048576 }')
  fi
  echo "$name: $size"
  exit
done
echo "build: podman, docker or buildah was not found; install one of them (on Debian: apt install podman)" >&2
exit 1
