package firewall

import (
	"context"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Watch sends whenever any table of this network namespace changes, by
// anybody. Changes that nobody has waited for are one. It ends with the
// context.
func Watch(ctx context.Context) (<-chan struct{}, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot watch nftables: %w", err)
	}
	if err := c.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("cannot watch nftables: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	changed := make(chan struct{}, 1)
	go func() {
		for {
			// The socket may lose events when there are many. That is a change
			// like another.
			if _, err := c.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	return changed, nil
}
