#!/bin/sh
# Runs the tests of the packages that are named, with what this machine has: it
# installs the sandbox where it may, leaves the race detector out where nothing
# can compile C, and says what was skipped. With AGAIN=N tests that failed run once
# more by themselves, when they are N or fewer.
set -eu

go=${GO:-go}
sh tools/sandbox.sh || echo "SKIPPED installing the sandbox: tests that need one are skipped"

# The detector is linked with cgo, which needs the compiler and the headers.
race=-race
if ! "$go" build -race runtime/cgo >/dev/null 2>&1; then
	race=
	echo "SKIPPED the race detector: it needs a C compiler and its headers (gcc and libc6-dev on Debian)"
fi
exec "$go" run ./internal/gotest ${AGAIN:+-again=$AGAIN} $race -shuffle=on -timeout=20m "$@"
