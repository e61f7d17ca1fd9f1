# syntax=docker/dockerfile:1

# Both images of this repository: build --target function (the default) or --target agent.
# tools/xpkg makes the same images without a container engine.
ARG GO_VERSION=1.26

# The compiler runs on the builder's own platform and cross-compiles, which is much faster than
# emulating the target.
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /src
ENV CGO_ENABLED=0

FROM build AS build-function
ARG TARGETOS
ARG TARGETARCH
RUN --mount=target=. \
    --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -buildvcs=false -ldflags="-s -w" -o /out/function ./cmd/function

FROM build AS build-agent
ARG TARGETOS
ARG TARGETARCH
RUN --mount=target=. \
    --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -buildvcs=false -ldflags="-s -w" -o /out/agent ./cmd/agent

FROM scratch AS agent
COPY --from=build-agent /out/agent /agent
# Kubernetes hands the capabilities that the agent needs to uid 0 only.
USER 0:0
ENTRYPOINT ["/agent"]

FROM scratch AS function
COPY --from=build-function /out/function /function
USER 65532:65532
EXPOSE 9443/tcp
ENTRYPOINT ["/function"]
