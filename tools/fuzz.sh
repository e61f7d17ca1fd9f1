#!/usr/bin/env bash
# Fuzzes each fuzz target for a while: tools/fuzz.sh [TIME]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-1m}

mapfile -t targets < <(git grep --untracked -oE '^func Fuzz[A-Za-z0-9_]*' -- '*_test.go')

# Nothing to fuzz would look like nothing found.
[ ${#targets[@]} -gt 0 ] || { echo "no fuzz target" >&2; exit 1; }

# `go test` fuzzes one target at a time.
for target in "${targets[@]}"; do
	file=${target%%:*} name=${target##* }
	echo "$file $name"
	go test -C "$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "$time" .
done
