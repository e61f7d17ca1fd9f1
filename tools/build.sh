#!/usr/bin/env bash
# Builds pinned tools: tools/build.sh [NAME...]   (without a name: all of them)
#
# The version is the one in the tool's own go.mod below this folder. Each version is built once,
# into a cache outside the work tree, so that a fresh clone does not build it again. The binary is
# then linked as _output/bin/NAME. Generators are not among them: go:generate lines run these with
# `go tool`.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${WIREGUARD_GATEWAY_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/function-wireguard-gateway/bin}
names=(
	crossplane crossplane-core etcd golangci-lint gotestsum
	kube-apiserver kube-controller-manager kubectl
)

# select_tool NAME sets the module's folder, the main package and the variables to stamp, if any.
# Crossplane compares its own version with the constraints in packages, so it has to know it. So has
# Kubernetes: clients ask for its version before they rely on what it can do.
select_tool() {
	stamps=()
	case $1 in
	crossplane)
		module=crossplane-cli package=github.com/crossplane/cli/v2/cmd/crossplane
		stamps=(github.com/crossplane/crossplane-runtime/v2/pkg/version.version)
		;;
	crossplane-core)
		module=crossplane-core package=github.com/crossplane/crossplane/v2/cmd/crossplane
		stamps=(github.com/crossplane/crossplane-runtime/v2/pkg/version.version)
		;;
	etcd) module=etcd package=go.etcd.io/etcd/server/v3 ;;
	golangci-lint) module=lint package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint ;;
	gotestsum) module=test package=gotest.tools/gotestsum ;;
	kube-apiserver | kube-controller-manager | kubectl)
		module=kubernetes package=k8s.io/kubernetes/cmd/$1
		stamps=(k8s.io/component-base/version.gitVersion k8s.io/client-go/pkg/version.gitVersion)
		;;
	*)
		echo "unknown tool $1, one of: ${names[*]}" >&2
		exit 2
		;;
	esac
}

# pinned_version PACKAGE GO_MOD prints the version of the module that holds the package: the
# longest required path that is a prefix of it. Reading the file needs no module download.
pinned_version() {
	awk -v package="$1/" '
		{ sub(/^require /, "") }
		$2 ~ /^v[0-9]/ && index(package, $1 "/") == 1 && length($1) > longest { longest = length($1); version = $2 }
		END { if (!longest) exit 1; print version }' "$2"
}

[ $# -gt 0 ] || set -- "${names[@]}"

for name in "$@"; do
	select_tool "$name"
	version=$(pinned_version "$package" "$root/tools/$module/go.mod")
	binary=$cache/$name-$version
	if [ ! -x "$binary" ]; then
		echo "building $name $version"
		mkdir -p "$cache"
		# Moved into place when complete: an interrupted build must not look like a finished one.
		partial=$(mktemp "$binary.XXXXXX")
		trap 'rm -f "$partial"' EXIT
		flags='-s -w'
		for stamp in "${stamps[@]}"; do flags+=" -X $stamp=$version"; done
		(cd "$root/tools/$module" && GOOS='' GOARCH='' CGO_ENABLED=0 go build -trimpath \
			-ldflags "$flags" -o "$partial" "$package")
		chmod 0755 "$partial"
		mv "$partial" "$binary"
	fi
	mkdir -p "$root/_output/bin"
	ln -sfn "$binary" "$root/_output/bin/$name"
done
