// Package events tells of what the kernel announces by netlink.
package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Watch sends whenever a multicast group of a netlink family announces
// anything. Announcements that nobody has waited for are one. It ends with the
// context.
func Watch(ctx context.Context, family int, groups ...uint32) (<-chan struct{}, error) {
	c, err := netlink.Dial(family, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot open netlink socket: %w", err)
	}
	for _, group := range groups {
		if err := c.JoinGroup(group); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("cannot join netlink group: %w", err)
		}
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	changed := make(chan struct{}, 1)
	go func() {
		for {
			// The socket may lose events when there are many. That is a change
			// like another: whoever listens looks at all there is.
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
