# Short names for what the go command and the scripts do. A recipe holds no logic of its own.

.PHONY: generate test test-controlplane test-controlplane-long test-node test-node-soak lint build render packages tools fuzz bench ci

generate:
	go generate ./...

test:
	go test ./...

# On a real API server with the real Crossplane, which are built once, in half an hour. Needs root.
test-controlplane:
	tools/build.sh crossplane crossplane-core etcd kube-apiserver kube-controller-manager kubectl
	WIREGUARD_GATEWAY_CONTROLPLANE=1 go test -v -count 1 -timeout 30m -parallel 8 ./test/controlplane/...

# The same with all sizes and faults.
test-controlplane-long:
	tools/build.sh crossplane crossplane-core etcd kube-apiserver kube-controller-manager kubectl
	WIREGUARD_GATEWAY_CONTROLPLANE=long go test -v -count 1 -timeout 2h -parallel 8 ./test/controlplane/...

# On a node that runs pods: minutes more to build once. Needs root and cgroup v1.
test-node:
	tools/build.sh crossplane crossplane-core etcd kube-apiserver kube-controller-manager kubectl
	tools/build.sh node
	WIREGUARD_GATEWAY_NODE=1 go test -v -count 1 -timeout 1h -skip '^TestSoak$$' ./test/node/...

# A node in use for two hours, or for as long as SOAK says.
SOAK ?= 2h
test-node-soak:
	tools/build.sh crossplane crossplane-core etcd kube-apiserver kube-controller-manager kubectl
	tools/build.sh node
	WIREGUARD_GATEWAY_NODE=1 WIREGUARD_GATEWAY_SOAK=$(SOAK) go test -v -count 1 -timeout 24h -run '^TestSoak$$' ./test/node

lint:
	tools/lint.sh

build:
	CGO_ENABLED=0 go build -trimpath -o _output/bin/ ./cmd/...

# EXAMPLE=example/NAME chooses another example than the smallest.
render:
	@test/render/render.sh $(EXAMPLE)

packages:
	tools/packages.sh

# Minutes at first, nothing after that: each version is built once.
tools:
	tools/build.sh

fuzz:
	tools/fuzz.sh

bench:
	go test -run '^$$' -bench . -benchmem ./...

ci:
	.ci/run
