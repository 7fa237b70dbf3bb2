#!/usr/bin/env bash
# Creates the root file system of a container with the Debian package installed, without a container engine:
# debootstrap's smallest Debian, the package, and what the package depends on. Containerfile.package does the same with
# an engine.
#
# usage: package_root.sh PACKAGE.deb FOLDER [--recommended] [--archive FILE.tar.gz]
#
# --recommended installs what the package recommends, too: MPI, libcurl, CA certificates. Prints the size. Needs root,
# debootstrap and a Debian mirror ($MIRROR). The archive can be imported: `podman import FILE.tar.gz lockstep`.
set -euo pipefail

usage() {
  echo "usage: $0 PACKAGE.deb FOLDER [--recommended] [--archive FILE.tar.gz]" >&2
  exit 2
}
if [ $# -lt 2 ]; then usage; fi
package=$1
root=$2
shift 2
recommended=--no-install-recommends
archive=
while [ $# -gt 0 ]; do
  case $1 in
    --recommended) recommended= ;;
    --archive)
      if [ $# -lt 2 ]; then usage; fi
      archive=$2
      shift
      ;;
    *) usage ;;
  esac
  shift
done

die() {
  echo "package_root: $*" >&2
  exit 1
}
[ -f "$package" ] || die "$package does not exist; make it with ./dev package"
[ "$(id -u)" -eq 0 ] || die "debootstrap needs root; run it with sudo"
command -v debootstrap >/dev/null || die "debootstrap is missing; install it"
# A root that debootstrap has made before is used again.
if [ -e "$root" ] && [ -n "$(ls -A "$root")" ] && [ ! -x "$root/usr/bin/apt-get" ]; then
  die "$root is not empty; choose another folder"
fi
# The release that the package was made on, whose libraries it names.
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
if [ ! -x "$root/usr/bin/apt-get" ]; then
  debootstrap --variant=minbase "$release" "$root" "${MIRROR:-http://deb.debian.org/debian}" >"$root.log" 2>&1 ||
    die "debootstrap failed; see $root.log"
  rm -f "$root.log"
fi

cp "$package" "$root/tmp/lockstep.deb"
install() {
  chroot "$root" apt-get update &&
    chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y $recommended /tmp/lockstep.deb
}
install >"$root/tmp/log" 2>&1 || {
  tail -n 20 "$root/tmp/log" >&2
  die "apt-get failed"
}
chroot "$root" apt-get clean
rm -rf "$root"/tmp/lockstep.deb "$root"/tmp/log "$root"/var/lib/apt/lists/* "$root"/var/log/*.log
chroot "$root" lockstep version
echo "$(chroot "$root" dpkg-query -W | wc -l) packages, $(du -smx "$root" | cut -f1) MiB in $root"
if [ -n "$archive" ]; then
  tar -C "$root" --one-file-system --numeric-owner -czf "$archive" .
  echo "$archive: $(($(stat -c %s "$archive") >> 20)) MiB"
fi
