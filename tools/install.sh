#!/bin/sh
# install.sh WHAT PACKAGE... installs packages with the system's package manager if it
# may, else says what to do.
set -eu

what=$1
shift
missing=$*

# Package names are Debian's, and differ here and there.
if command -v apt-get >/dev/null 2>&1; then
	install="apt-get install -y --no-install-recommends" packages=$missing
elif command -v dnf >/dev/null 2>&1; then
	install="dnf install -y" packages=$(echo "$missing" | sed 's/postgresql/postgresql-server/')
elif command -v apk >/dev/null 2>&1; then
	install="apk add" packages=$missing
elif command -v pacman >/dev/null 2>&1; then
	install="pacman -S --noconfirm --needed" packages=$(echo "$missing" | sed 's/python3/python/')
elif command -v zypper >/dev/null 2>&1; then
	install="zypper --non-interactive install" packages=$(echo "$missing" | sed 's/postgresql/postgresql-server/')
else
	echo "install$(echo " $missing" | tr -s ' ') and try again; no package manager known to it is here" >&2
	exit 1
fi

if [ "$(id -u)" = 0 ]; then
	as_root=
elif sudo -n true 2>/dev/null; then
	as_root="sudo -n"
else
	echo "installing $what needs root; run this yourself and try again:" >&2
	echo "    sudo $install $packages" | tr -s ' ' >&2
	exit 1
fi

echo "installing:$(echo " $packages" | tr -s ' ')"
export DEBIAN_FRONTEND=noninteractive
case $install in
apt-get*) # a machine that never updated has no lists, or old ones
	$as_root $install $packages >/dev/null 2>&1 || { $as_root apt-get update -qq && $as_root $install $packages; } ;;
*) $as_root $install $packages ;;
esac
