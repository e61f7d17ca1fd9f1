#!/usr/bin/env bash
# Fuzzes each fuzz target for a while: tools/fuzz.sh [TIME]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-1m}

mapfile -t targets < <(git grep --untracked -oE '^func Fuzz[A-Za-z0-9_]*' -- '*_test.go')

# Nothing to fuzz would look like nothing found.
[ ${#targets[@]} -gt 0 ] || { echo "no fuzz target" >&2; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz FOLDER NAME fuzzes one target, as `go test` does at a time. Before Go 1.27 that may take the
# end of the time for a failure (https://go.dev/issue/75804). It is none where no input was found:
# the target is fuzzed again then, twice at most.
fuzz() {
	local attempt
	for attempt in 1 2 3; do
		! go test -C "$1" -run '^$' -fuzz "^$2\$" -fuzztime "$time" . 2>&1 | tee "$log" || return 0
		grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log" || return 1
		echo "$2 has run out of time, attempt $attempt"
	done
	return 1
}

for target in "${targets[@]}"; do
	file=${target%%:*} name=${target##* }
	echo "$file $name"
	fuzz "$(dirname "$file")" "$name"
done
