package route

import (
	"context"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Watch sends whenever links, addresses, routes or rules change, by anybody.
// Changes that nobody has waited for are one. It ends with the context.
func Watch(ctx context.Context) (<-chan struct{}, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot watch the network: %w", err)
	}
	for _, group := range []uint32{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	} {
		if err := c.JoinGroup(group); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("cannot watch the network: %w", err)
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
