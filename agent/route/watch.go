package route

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/events"
)

// Watch sends whenever links, addresses, routes or rules change, by anybody.
// Changes that nobody has waited for are one. It ends with the context.
func Watch(ctx context.Context) (<-chan struct{}, error) {
	changed, err := events.Watch(ctx, unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return nil, fmt.Errorf("cannot watch the network: %w", err)
	}
	return changed, nil
}
