package sidecar

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// gcPercent keeps the garbage small beside userspace WireGuard's buffers.
	// They count as 28 MiB, although most of them are never touched, so that
	// as much garbage again would be allowed.
	gcPercent = 10

	// Under load these buffers grow as far as they are let, to 240 MiB as was
	// measured. defaultMemory is where they begin to be used again, in bytes.
	// Less costs throughput: with this much, up to a half of 1.5 Gbit/s. Who
	// needs more gives the container more. Below minMemory nothing but
	// collecting garbage would be done.
	defaultMemory = 128 << 20
	minMemory     = 40 << 20

	// unlimited is what no container's limit comes up to. In cgroups v1 it is
	// how the lack of one is written.
	unlimited = 1 << 50
)

// memoryLimits are the files with the container's limit, in cgroups v2 and v1.
var memoryLimits = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// limitMemory keeps the process small, unless its environment says how large it
// may be.
func limitMemory(environment func(string) string) {
	if environment("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if environment("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softLimit(memoryLimits))
	}
}

// softLimit returns three quarters of the container's limit, and defaultMemory
// where it has none. The rest is for what the Go runtime does not count.
func softLimit(paths []string) int64 {
	for _, path := range paths {
		b, err := os.ReadFile(path) //nolint:gosec // The paths are constants, but for tests.
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || n >= unlimited { // cgroups v2 write "max"
			return defaultMemory
		}
		return max(minMemory, n/4*3)
	}
	return defaultMemory
}
