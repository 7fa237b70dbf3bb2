#!/usr/bin/env bash
# Makes the release archive of a build: the program with the libraries that it needs, for machines whose packages are
# unknown. They need the C library only (glibc, of the version that is printed).
#
# usage: archive.sh BUILD_FOLDER
#
# The archive is BUILD_FOLDER/lockstep-VERSION-linux-MACHINE.tar.gz: bin/lockstep, lib/lockstep/*.so*, manual pages,
# completions and examples. The C++ headers and static libraries are not in it: build programs where you can compile.
set -euo pipefail

if [ $# -ne 1 ]; then
  echo "usage: $0 BUILD_FOLDER" >&2
  exit 2
fi
build=$1
if [ ! -x "$build/lockstep" ]; then
  echo "archive: $build/lockstep does not exist; build it first" >&2
  exit 1
fi
version=$("$build/lockstep" --version)
name=lockstep-${version#lockstep }-linux-$(uname -m)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022
DESTDIR='' cmake --install "$build" --prefix "$stage/$name" --strip >"$stage/log" || {
  cat "$stage/log" >&2
  exit 1
}
rm -rf "$stage/$name"/{include,lib/cmake,lib/*.a}

# The C library belongs to the machine: its parts must fit each other and the kernel. Everything else is copied, with
# the names that the program asks for. So is libcurl, which the program opens: that of the machine may need a newer
# OpenSSL than the one in the archive.
libraries=$stage/$name/lib/lockstep
mkdir -p "$libraries"
curl=$(ldconfig -p | sed -n 's/.*libcurl\.so\.4 .*=> //p' | head -n 1)
if [ -n "$curl" ]; then install -m 644 "$(readlink -f "$curl")" "$libraries/libcurl.so.4"; fi
for each in "$build/lockstep" $curl; do ldd "$each"; done | sort -u | sed -n 's/^\t\(.*\) => \(.*\) (0x.*/\1 \2/p' |
  while read -r library path; do
    case $library in
      libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.* | ld-linux*) continue ;;
    esac
    install -m 644 "$(readlink -f "$path")" "$libraries/$library"
  done

# The newest symbol version of the C library that any file needs.
glibc=$(find "$stage/$name/bin" "$stage/$name/libexec" "$libraries" -type f -exec objdump -T {} + 2>/dev/null |
  sed -n 's/.*GLIBC_\([0-9.]*\)[ )].*/\1/p' | sort -uV | tail -n 1)
cat >"$stage/$name/INSTALL.txt" <<TEXT
Lockstep ${version#lockstep } for Linux on $(uname -m), with glibc $glibc or newer.

  bin/lockstep version
  sudo cp -r bin lib libexec share /usr/local/     # or add bin/ to PATH

MPI (Open MPI 4, libmpi.so.40) is used where it is installed, CUDA's libraries where there is a GPU. Downloads use the
certificates of the machine in /etc/ssl/certs.
TEXT
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -9n >"$build/$name.tar.gz"
echo "$build/$name.tar.gz: $(($(stat -c %s "$build/$name.tar.gz") >> 20)) MiB, needs glibc $glibc"
