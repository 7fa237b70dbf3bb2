#!/usr/bin/env bash
# run.sh BUILD_DIR SOURCE_DIR [CXX]: makes the Debian package of the build, extracts it into a folder, and uses what is
# in it: the program, MPI, manual pages, completions, and the library from another CMake project. Nothing is built that
# belongs to the package. Exit code 77: the tools of Debian are missing.
set -euo pipefail
build=${1:?usage: run.sh BUILD_DIR SOURCE_DIR [CXX]}
source=${2:?usage: run.sh BUILD_DIR SOURCE_DIR [CXX]}
for tool in cpack dpkg-deb dpkg-shlibdeps; do
  if ! command -v $tool >/dev/null; then
    echo "skipped: $tool is not installed; install cmake and dpkg-dev"
    exit 77
  fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*"
  exit 1
}
has() { grep -qF -- "$2" "$1" || { cat "$1"; fail "no \"$2\" in $1"; }; }
lacks() { if grep -qF -- "$2" "$1"; then cat "$1"; fail "\"$2\" in $1"; fi; }

# The package and its fields.
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/deb" >"$work/cpack.log" 2>&1 || { cat "$work/cpack.log"; fail cpack; }
deb=$(echo "$work"/deb/*.deb)
version=$(sed -n 's/#define LOCKSTEP_VERSION "\(.*\)"/\1/p' "$source/include/lockstep/version.h")
[ "$(basename "$deb")" = "lockstep_${version}_$(dpkg --print-architecture).deb" ] || fail "the name is $deb"
dpkg-deb -f "$deb" Depends >"$work/depends"
dpkg-deb -f "$deb" Recommends >"$work/recommends"
has "$work/depends" "libopenblas0"
has "$work/depends" "libssl3"
# What the program loads when it needs it is not required to install it.
for package in openmpi libcurl libgrpc libcares; do lacks "$work/depends" $package; done
has "$work/recommends" "libcurl4"
# lintian takes half a minute.
if [ -n "${LOCKSTEP_LONG_TESTS:-}" ] && command -v lintian >/dev/null; then
  lintian --fail-on error,warning --tag-display-limit 0 "$deb" >"$work/lintian" 2>&1 || { cat "$work/lintian"; fail lintian; }
fi

# The program, extracted.
root=$work/root
dpkg-deb -x "$deb" "$root"
lockstep=$root/usr/bin/lockstep
for file in bin/lockstep include/lockstep/lockstep.h lib/liblockstep_train.a lib/cmake/lockstep/lockstepConfig.cmake \
  share/man/man1/lockstep-train.1.gz share/bash-completion/completions/lockstep share/zsh/vendor-completions/_lockstep \
  share/fish/vendor_completions.d/lockstep.fish share/doc/lockstep/copyright share/doc/lockstep/changelog.gz \
  share/doc/lockstep/CHANGELOG.md.gz share/doc/lockstep/examples/my_task.cc share/lockstep/templates/pod.yaml.j2; do
  [ -s "$root/usr/$file" ] || fail "the package has no $file"
done
[ "$("$lockstep" --version)" = "lockstep $version" ] || fail "$("$lockstep" --version)"
ldd "$lockstep" >"$work/ldd"
lacks "$work/ldd" "not found"
lacks "$work/ldd" libmpi
[ "$(wc -l <"$work/ldd")" -le 25 ] || { cat "$work/ldd"; fail "$(wc -l <"$work/ldd") shared libraries; at most 25 are allowed"; }
if readelf -d "$lockstep" | grep -E 'R(UN)?PATH' | grep -v '\[\$ORIGIN/../lib/lockstep\]'; then fail "rpath"; fi
(cd "$work" && LOCKSTEP_PLATFORM=cpu "$lockstep" train --dataset synthetic --steps 3 --batch-size 64 --devices 2 --quiet >train.txt)
has "$work/train.txt" "after 3 steps"

# MPI: with the plug-in of the package, and without it.
plugin=$root/usr/lib/lockstep/liblockstep_mpi.so
if [ -e "$plugin" ]; then
  has "$work/recommends" openmpi-bin
  "$lockstep" version -o json >"$work/version"
  has "$work/version" "Open MPI"
  if command -v mpirun >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1
    LOCKSTEP_PLATFORM=cpu LOCKSTEP_COLLECTIVES=mpi timeout 60 mpirun -n 2 "$lockstep" allreduce >"$work/mpi.txt" 2>&1 ||
      { cat "$work/mpi.txt"; fail mpirun; }
    has "$work/mpi.txt" "Process 1 has y=[2.]"
  fi
  started=(env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 PRTE_LAUNCHED=1)
  mv "$plugin" "$work/plugin.so"
  "${started[@]}" "$lockstep" allreduce >"$work/none.txt" 2>&1 && fail "it ran without its plug-in"
  has "$work/none.txt" "mpi: liblockstep_mpi.so was not found (searched: $root/usr/bin/liblockstep_mpi.so, "
  "$lockstep" version >"$work/version"
  has "$work/version" "collectives over MPI  not available: mpi: liblockstep_mpi.so was not found"
  # A file that is not the plug-in, as if a library that it needs were missing.
  echo x >"$plugin"
  "${started[@]}" "$lockstep" doctor >"$work/none.txt" 2>&1 && fail "doctor found no problem"
  has "$work/none.txt" "MPI started this process, but it is not available: mpi: cannot load liblockstep_mpi.so ("
  mv "$work/plugin.so" "$plugin"
fi

# Manual pages and completions.
if command -v man >/dev/null; then
  MANPAGER=cat man -l "$root/usr/share/man/man1/lockstep-train.1.gz" >"$work/man.txt" 2>"$work/man.err"
  has "$work/man.txt" "LOCKSTEP-TRAIN(1)"
  [ ! -s "$work/man.err" ] || { cat "$work/man.err"; fail man; }
fi
bash --norc -c "source '$root/usr/share/bash-completion/completions/lockstep' && complete -p lockstep" >"$work/bash.txt"
has "$work/bash.txt" "-F _lockstep lockstep"
if command -v zsh >/dev/null; then
  HOME=$work zsh -f -c "fpath=('$root/usr/share/zsh/vendor-completions' \$fpath); autoload -U compinit; compinit -u -d '$work/zcompdump'; print \$_comps[lockstep]" >"$work/zsh.txt"
  has "$work/zsh.txt" _lockstep
fi
if command -v fish >/dev/null; then
  # fish loads completions of programs on the PATH only.
  HOME=$work PATH=$root/usr/bin:$PATH XDG_DATA_DIRS=$root/usr/share fish -c 'complete -C "lockstep doct"' >"$work/fish.txt"
  has "$work/fish.txt" doctor
fi

# The library: a program of another project, which finds the plug-in, too.
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
cmake -S "$source/tests/package/consumer" -B "$work/consumer" "${generator[@]}" -DCMAKE_PREFIX_PATH="$root/usr" -DCMAKE_CXX_FLAGS=-O0 \
  ${3:+-DCMAKE_CXX_COMPILER="$3"} >"$work/consumer.log" 2>&1 || { cat "$work/consumer.log"; fail "cmake of the consumer"; }
cmake --build "$work/consumer" >"$work/consumer.log" 2>&1 || { cat "$work/consumer.log"; fail "build of the consumer"; }
if [ -e "$plugin" ] && command -v mpirun >/dev/null; then
  timeout 60 mpirun -n 2 "$work/consumer/consumer" >"$work/consumer.txt" 2>&1 || { cat "$work/consumer.txt"; fail "mpirun of the consumer"; }
  has "$work/consumer.txt" "joined 2 processes"
else
  "$work/consumer/consumer" >"$work/consumer.txt"
  has "$work/consumer.txt" "joined 1 processes"
fi

echo "$(basename "$deb"): $(($(stat -c %s "$deb") >> 20)) MiB, $(wc -l <"$work/ldd") shared libraries"
