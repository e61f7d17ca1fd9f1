#!/usr/bin/env bash
# Builds everything that is released, into _output/packages: the function's packages, one for each
# architecture, both configurations, and the agent's images as tarballs.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$PWD/_output/packages
mkdir -p "$out"
# On the same file system: what others read meanwhile is replaced as a whole.
work=$(mktemp -d "$PWD/_output/packages.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/out"

tools/build.sh crossplane
go build -C tools/xpkg -o "$work/xpkg" .

for arch in amd64 arm64; do
	for image in function agent; do
		# No version control stamp: the bytes follow from the code alone.
		CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags '-s -w' \
			-o "$work/$image-$arch" "./cmd/$image"
	done

	"$work/xpkg" -image function -arch "$arch" -binary "$work/function-$arch" -output "$work/function-$arch.tar"
	_output/bin/crossplane xpkg build --package-root package/function \
		--embed-runtime-image-tarball "$work/function-$arch.tar" \
		--package-file "$work/out/function-wireguard-gateway-$arch.xpkg"

	"$work/xpkg" -image agent -arch "$arch" -binary "$work/agent-$arch" -output "$work/out/agent-$arch.tar"
done

for root in configuration configuration-claim; do
	_output/bin/crossplane xpkg build --package-root "package/$root" \
		--package-file "$work/out/${root/configuration/configuration-wireguard-gateway}.xpkg"
done

mv "$work/out/"* "$out"
