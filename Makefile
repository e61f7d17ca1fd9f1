# Short names for what the go command and the scripts do. A recipe holds no logic of its own.

.PHONY: generate test lint build render packages tools fuzz bench ci

generate:
	go generate ./...

test:
	go test ./...

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
