#!/usr/bin/env bash
# Makes of fresh namespaces those of a node: namespaces.sh DIR HIERARCHY...
# Nothing that a kubelet, a container runtime or a network plugin writes is seen outside.
set -euo pipefail
dir=$1
shift

hostname node
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
for hierarchy; do
	mkdir "/sys/fs/cgroup/$hierarchy"
	options=$hierarchy
	[ "$hierarchy" != systemd ] || options=none,name=systemd
	mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/$hierarchy"
done

# The kubelet insists on these values, which hold for the whole machine. It finds and changes files.
fake() {
	echo "$2" >"$dir/sysctl.${1//\//.}"
	mount --bind "$dir/sysctl.${1//\//.}" "/proc/sys/$1"
}
fake vm/overcommit_memory 1
fake vm/panic_on_oom 0
fake kernel/panic 10
fake kernel/panic_on_oops 1

mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/lock "$dir"/var/{lib,log}
mount --bind "$dir/var/lib" /var/lib
mount --bind "$dir/var/log" /var/log
mkdir -p /var/lib/kubelet
# Mounts of pods pass to containers, as on any node.
mount --make-rshared /

ip link set lo up
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1 2>/dev/null || true
