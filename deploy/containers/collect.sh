#!/usr/bin/env bash
# Creates the root file system of a container: a program and everything it needs to run.
#
# usage: collect.sh [--also PROGRAM]... PROGRAM FOLDER [LIBRARY...]
#
# Copies the program as bin/lockstep and the others under their own names. Copies their shared libraries according to ldd,
# libcurl and the given libraries (CUDA), which they open with dlopen, the dynamic loader and the CA certificates (for
# https). Adds a user that is not root. Prints the number of libraries and the size.
set -euo pipefail

others=()
while [ "${1:-}" = --also ] && [ $# -ge 2 ]; do
  others+=("$2")
  shift 2
done
if [ $# -lt 2 ]; then
  echo "usage: $0 [--also PROGRAM]... PROGRAM FOLDER [LIBRARY...]" >&2
  exit 2
fi
program=$1
root=$2
shift 2
user=65532

for each in "$program" ${others[@]+"${others[@]}"}; do
  if [ ! -x "$each" ]; then
    echo "collect: program $each does not exist or is not executable; build it first" >&2
    exit 1
  fi
done
for library; do
  if [ ! -e "$library" ]; then
    echo "collect: library $library does not exist" >&2
    exit 1
  fi
done
if [ -e "$root" ] && [ -n "$(ls -A "$root")" ]; then
  echo "collect: $root is not empty; choose another folder" >&2
  exit 1
fi

umask 022  # readable for all users
mkdir -p "$root"/{bin,etc/ssl/certs,tmp,checkpoints,proc,dev}
install -m 755 "$program" "$root/bin/lockstep"
if [ ${#others[@]} -gt 0 ]; then install -m 755 -t "$root/bin" "${others[@]}"; fi
strip --strip-unneeded "$root"/bin/* 2>/dev/null || true

# libcurl, which the program opens when it downloads something, is not in the output of ldd.
curl=$(ldconfig -p 2>/dev/null | sed -n 's/.*libcurl\.so\.4 .*=> //p' | head -n 1)
if [ -n "$curl" ] && grep -q 'libcurl\.so\.4' "$program"; then set -- "$@" "$curl"; fi

# ldd prints "name => /path" for a library and "/path" for the loader. A missing library is an error, except NVIDIA's
# driver, which comes from the host.
libraries=$(for each in "$program" ${others[@]+"${others[@]}"} "$@"; do ldd "$each"; done | sed 's/ (0x.*//' | grep -v 'libcuda\.so' | sort -u)
for library; do libraries+=$'\n'"$(basename "$library") => $library"; done
if grep -q 'not found' <<<"$libraries"; then
  grep 'not found' <<<"$libraries" >&2
  echo "collect: these libraries of $program are missing on this machine; install them" >&2
  exit 1
fi
awk '$2 == "=>" { print $1, $3 } $1 ~ /^\// { print $1, $1 }' <<<"$libraries" | while read -r name path; do
  case $name in
    /*) to=$root$name ;;               # the loader, at the path that the program names
    *) to=$root/lib/$name ;;
  esac
  install -D -m 755 "$(readlink -f "$path")" "$to"
done
# glibc opens these with dlopen to resolve host names with /etc/hosts and DNS.
folder=$(dirname "$(awk '$1 == "libc.so.6" { print $3 }' <<<"$libraries")")
for name in libnss_files.so.2 libnss_dns.so.2 libresolv.so.2; do
  if [ -e "$folder/$name" ] && [ ! -e "$root/lib/$name" ]; then
    install -D -m 755 "$(readlink -f "$folder/$name")" "$root/lib/$name"
  fi
done

echo "hosts: files dns" >"$root/etc/nsswitch.conf"
echo "/lib" >"$root/etc/ld.so.conf"
printf 'root:x:0:0::/:/none\nlockstep:x:%s:%s::/tmp:/none\n' $user $user >"$root/etc/passwd"
printf 'root:x:0:\nlockstep:x:%s:\n' $user >"$root/etc/group"
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
  install -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
fi
chmod 1777 "$root/tmp" "$root/checkpoints"
if [ "$(id -u)" -eq 0 ] && command -v ldconfig >/dev/null; then ldconfig -r "$root" 2>/dev/null || true; fi

echo "$(find "$root" -name '*.so*' | wc -l) libraries, $(du -sm "$root" | cut -f1) MiB in $root"
