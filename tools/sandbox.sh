#!/bin/sh
# Makes sure that bubblewrap and a Python are there: installs them with the
# system's package manager if it may, else says what to do. Other systems than
# Linux have no bubblewrap, and askpy takes Docker there.
set -eu

missing=
command -v bwrap >/dev/null 2>&1 || missing=bubblewrap
command -v python3 >/dev/null 2>&1 || missing="$missing python3"
[ -n "$missing" ] || exit 0

if [ "$(uname -s)" != Linux ]; then
	echo "bubblewrap needs Linux, and this is $(uname -s): programs run in Docker here, if at all" >&2
	exit 0
fi

exec sh "$(dirname "$0")/install.sh" "the sandbox" $missing
