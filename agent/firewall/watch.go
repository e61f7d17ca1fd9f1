package firewall

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/events"
)

// Watch sends whenever any table of this network namespace changes, by
// anybody. Changes that nobody has waited for are one. It ends with the
// context.
func Watch(ctx context.Context) (<-chan struct{}, error) {
	changed, err := events.Watch(ctx, unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return nil, fmt.Errorf("cannot watch nftables: %w", err)
	}
	return changed, nil
}
