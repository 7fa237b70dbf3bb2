#!/usr/bin/env bash
# Puts a program and all it needs to run into a folder, and nothing else: the root of a container.
#
# usage: collect.sh PROGRAM FOLDER [LIBRARY...]
#
# The libraries are those that the dynamic loader finds for the program, here and now, and those given, which the program
# opens by itself (CUDA's); the loader itself, the certificates of the authorities (for https) and a user that is not root
# come with them. Prints what there is and its size.
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: $0 PROGRAM FOLDER [LIBRARY...]" >&2
  exit 2
fi
program=$1
root=$2
shift 2
user=65532

if [ ! -x "$program" ]; then
  echo "collect: there is no program $program; build it first" >&2
  exit 1
fi
for library; do
  if [ ! -e "$library" ]; then
    echo "collect: there is no library $library" >&2
    exit 1
  fi
done
if [ -e "$root" ] && [ -n "$(ls -A "$root")" ]; then
  echo "collect: $root is not empty; choose another folder" >&2
  exit 1
fi

umask 022  # for others to read
mkdir -p "$root"/{bin,etc/ssl/certs,tmp,checkpoints,proc,dev}
install -m 755 "$program" "$root/bin/lockstep"
strip --strip-unneeded "$root/bin/lockstep" 2>/dev/null || true

# "name => /path" for a library, "/path" for the loader; a library that is not found is an error. The driver of NVIDIA's
# GPUs is the host's.
libraries=$(for each in "$program" "$@"; do ldd "$each"; done | sed 's/ (0x.*//' | grep -v 'libcuda\.so' | sort -u)
for library; do libraries+=$'\n'"$(basename "$library") => $library"; done
if grep -q 'not found' <<<"$libraries"; then
  grep 'not found' <<<"$libraries" >&2
  echo "collect: these libraries of $program are not on this machine" >&2
  exit 1
fi
awk '$2 == "=>" { print $1, $3 } $1 ~ /^\// { print $1, $1 }' <<<"$libraries" | while read -r name path; do
  case $name in
    /*) to=$root$name ;;               # the loader: its place is written in the program
    *) to=$root/lib/$name ;;
  esac
  install -D -m 755 "$(readlink -f "$path")" "$to"
done
# Names are looked up through these, which no program names: /etc/hosts and DNS, as pods need them.
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
