#!/usr/bin/env bash
# Lints every module of the repository, and the shell scripts.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/build.sh golangci-lint

for module in $(git ls-files -- go.mod '*/go.mod'); do
	folder=$(dirname "$module")
	# Modules that only pin a tool hold no code.
	[ -n "$(git ls-files -- "$folder/*.go")" ] || continue
	echo "golangci-lint $folder"
	(cd "$folder" && "$OLDPWD/_output/bin/golangci-lint" run ./...)
done

git ls-files -- '*.sh' .ci/run | xargs shellcheck
