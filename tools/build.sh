#!/usr/bin/env bash
# Builds pinned tools: tools/build.sh [NAME...]   (without a name: all but those of a node;
# `node`: those)
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
# What turns a control plane into a node, and the way users install Crossplane.
node=(
	kubelet kube-proxy kube-scheduler containerd containerd-shim-runc-v2 runc
	bridge host-local loopback coredns helm
)

# select_tool NAME sets the module's folder, the main package and the variables to stamp, if any.
# Crossplane compares its own version with the constraints in packages, so it has to know it. So has
# Kubernetes: clients ask for its version before they rely on what it can do.
select_tool() {
	stamps=() pinned=''
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
	kube-apiserver | kube-controller-manager | kubectl | kubelet | kube-proxy | kube-scheduler)
		module=kubernetes package=k8s.io/kubernetes/cmd/$1
		stamps=(k8s.io/component-base/version.gitVersion k8s.io/client-go/pkg/version.gitVersion)
		;;
	containerd | containerd-shim-runc-v2)
		module=containerd package=github.com/containerd/containerd/v2/cmd/$1
		;;
	bridge | loopback) module=cni package=github.com/containernetworking/plugins/plugins/main/$1 ;;
	host-local) module=cni package=github.com/containernetworking/plugins/plugins/ipam/$1 ;;
	coredns) module=coredns package=. pinned=github.com/coredns/coredns ;;
	helm) module=helm package=helm.sh/helm/v3/cmd/helm ;;
	*)
		echo "unknown tool $1, one of: ${names[*]} ${node[*]}" >&2
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

download_runc() {
	apt-get -qq -o APT::Sandbox::User=root download runc >/dev/null
}

# runc needs C libraries to build, so it is Debian's: unpacked, not installed.
unpack_runc() {
	binary=$(find "$cache" -name 'runc-*' -perm -0100 2>/dev/null | sort -V | tail -n 1)
	[ -z "$binary" ] || return 0
	echo "unpacking runc"
	local work
	work=$(mktemp -d)
	(cd "$work" && { download_runc || { apt-get -qq update && download_runc; }; } && dpkg-deb -x runc_*.deb root)
	mkdir -p "$cache"
	binary=$cache/runc-$(dpkg-deb -f "$work"/runc_*.deb Version)
	mv "$work/root/usr/sbin/runc" "$binary"
	rm -rf "$work"
}

[ $# -gt 0 ] || set -- "${names[@]}"
[ "$*" != node ] || set -- "${node[@]}"

mkdir -p "$root/_output/bin"
for name in "$@"; do
	if [ "$name" = runc ]; then
		unpack_runc
		ln -sfn "$binary" "$root/_output/bin/runc"
		continue
	fi
	select_tool "$name"
	version=$(pinned_version "${pinned:-$package}" "$root/tools/$module/go.mod")
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
	ln -sfn "$binary" "$root/_output/bin/$name"
done
