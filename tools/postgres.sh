#!/bin/sh
# Makes sure that a PostgreSQL server is there, as sandbox.sh does for the sandbox.
# Nothing is started.
set -eu

for bin in /usr/lib/postgresql/*/bin/initdb; do
	[ ! -x "$bin" ] || exit 0
done
command -v initdb >/dev/null 2>&1 && exit 0
exec sh "$(dirname "$0")/install.sh" PostgreSQL postgresql
