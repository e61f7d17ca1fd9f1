package firewall

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// socketBuffer is how many bytes a transaction, and the acknowledgements of its
// messages, may take. It is a limit, not memory in use.
const socketBuffer = 64 << 20

// sockets are the connections to nftables. They stay open, since closing one
// waits until the kernel has freed what was deleted before, which takes longer
// than all the rest. The zero value is ready for use.
type sockets struct {
	changes *nftables.Conn
	queries *netlink.Conn
}

// change sends what f writes in one transaction.
func (s *sockets) change(f func(*nftables.Conn) error) error {
	if s.changes == nil {
		c, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
			if err := c.SetWriteBuffer(socketBuffer); err != nil {
				return err
			}
			return c.SetReadBuffer(socketBuffer)
		}))
		if err != nil {
			return fmt.Errorf("cannot talk to nftables: %w", err)
		}
		s.changes = c
	}
	err := f(s.changes)
	if err == nil {
		err = s.changes.Flush()
	}
	if err != nil {
		// What is left of the failure, in the buffer or on the way, must not
		// meet the next transaction.
		_ = s.changes.CloseLasting()
		s.changes = nil
	}
	return err
}

// request speaks to nftables directly, because the library reads back fewer
// expressions than it writes.
func (s *sockets) request(kind uint16, flags netlink.HeaderFlags, attributes []byte) ([]netlink.Message, error) {
	if s.queries == nil {
		c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
		if err != nil {
			return nil, fmt.Errorf("cannot talk to nftables: %w", err)
		}
		s.queries = c
	}
	// struct nfgenmsg: family, version, resource.
	header := []byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}
	messages, err := s.queries.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: flags},
		Data:   append(header, attributes...),
	})
	if err != nil {
		_ = s.queries.Close()
		s.queries = nil
	}
	return messages, err
}

func (s *sockets) close() {
	if s.changes != nil {
		_ = s.changes.CloseLasting()
	}
	if s.queries != nil {
		_ = s.queries.Close()
	}
	*s = sockets{}
}
