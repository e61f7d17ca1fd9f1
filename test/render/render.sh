#!/usr/bin/env bash
# Renders an example with the real CLI: test/render/render.sh [EXAMPLE [FLAG...]]
#
# EXAMPLE is a folder with an xr.yaml, example/minimal if none is given. Its observed.yaml and
# required.yaml, where it has them, stand for what the cluster holds. Flags go to the CLI.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
example=${1:-$root/example/minimal}
shift || true

"$root/tools/build.sh" crossplane crossplane-core >&2
go build -C "$root" -o _output/bin/function ./cmd/function

# A port that nothing answers on now.
port=9443
while (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((20000 + RANDOM % 10000)); done

"$root/_output/bin/function" --insecure --address "127.0.0.1:$port" --metrics-address "" >&2 &
function=$!
trap 'kill "$function" 2>/dev/null || true; wait "$function" 2>/dev/null || true' EXIT

until (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
	kill -0 "$function" 2>/dev/null || { echo "the function did not start" >&2; exit 1; }
	sleep 0.05
done

# The composition for the kind that the example is of.
kind=$(awk '/^kind:/ { print $2; exit }' "$example/xr.yaml")
composition=$(grep -lE "^ +kind: $kind\$" "$root"/package/configuration/composition*.yaml) ||
	{ echo "no composition for $kind" >&2; exit 1; }

cluster=()
[ ! -e "$example/observed.yaml" ] || cluster+=(--observed-resources "$example/observed.yaml")
[ ! -e "$example/required.yaml" ] || cluster+=(--required-resources "$example/required.yaml")

"$root/_output/bin/crossplane" composition render "$example/xr.yaml" "$composition" \
	"$root/example/functions.yaml" --crossplane-binary "$root/_output/bin/crossplane-core" \
	--function-annotations "render.crossplane.io/runtime-development-target=127.0.0.1:$port" \
	--required-schemas "$root/example/schemas" --include-full-xr "${cluster[@]}" "$@"
