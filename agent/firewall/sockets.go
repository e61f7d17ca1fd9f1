package firewall

import (
	"encoding/binary"
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
func (s *sockets) request(family byte, kind uint16, flags netlink.HeaderFlags, attributes []byte) ([]netlink.Message, error) {
	if s.queries == nil {
		c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
		if err != nil {
			return nil, fmt.Errorf("cannot talk to nftables: %w", err)
		}
		s.queries = c
	}
	// struct nfgenmsg: family, version, resource.
	header := []byte{family, unix.NFNETLINK_V0, 0, 0}
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

// generation reads how many changes there were to any table of this network
// namespace.
func (s *sockets) generation() (uint32, error) {
	messages, err := s.request(unix.NFPROTO_UNSPEC, unix.NFT_MSG_GETGEN, netlink.Request, nil)
	if err != nil {
		return 0, fmt.Errorf("cannot read nftables generation: %w", err)
	}
	if len(messages) != 1 {
		return 0, fmt.Errorf("cannot read nftables generation: got %d answers", len(messages))
	}
	id, err := attribute(messages[0], unix.NFTA_GEN_ID)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(id), nil
}

// rules returns the handles of a table's rules.
func (s *sockets) rules(family byte, name string) ([]uint64, error) {
	table, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: []byte(name + "\x00")},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot encode nftables request: %w", err)
	}
	messages, err := s.request(family, unix.NFT_MSG_GETRULE, netlink.Request|netlink.Dump, table)
	if err != nil {
		return nil, fmt.Errorf("cannot list nftables rules: %w", err)
	}
	var handles []uint64
	for _, m := range messages {
		handle, err := attribute(m, unix.NFTA_RULE_HANDLE)
		if err != nil {
			return nil, err
		}
		handles = append(handles, binary.BigEndian.Uint64(handle))
	}
	return handles, nil
}

// count reads a named counter.
func (s *sockets) count(family byte, table, name string) (uint64, error) {
	b, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_OBJ_TABLE, Data: []byte(table + "\x00")},
		{Type: unix.NFTA_OBJ_NAME, Data: []byte(name + "\x00")},
		{Type: unix.NFTA_OBJ_TYPE, Data: binary.BigEndian.AppendUint32(nil, unix.NFT_OBJECT_COUNTER)},
	})
	if err != nil {
		return 0, fmt.Errorf("cannot encode nftables request: %w", err)
	}
	messages, err := s.request(family, unix.NFT_MSG_GETOBJ, netlink.Request, b)
	if err != nil {
		return 0, fmt.Errorf("cannot read nftables counter %s: %w", name, err)
	}
	if len(messages) != 1 {
		return 0, fmt.Errorf("cannot read nftables counter %s: got %d answers", name, len(messages))
	}
	data, err := attribute(messages[0], unix.NFTA_OBJ_DATA)
	if err != nil {
		return 0, err
	}
	inner, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return 0, fmt.Errorf("cannot read nftables counter %s: %w", name, err)
	}
	for _, a := range inner {
		if a.Type == unix.NFTA_COUNTER_PACKETS && len(a.Data) == 8 {
			return binary.BigEndian.Uint64(a.Data), nil
		}
	}
	return 0, fmt.Errorf("cannot read nftables counter %s: it has no packets", name)
}

// attribute returns the data of a message's attribute.
func attribute(m netlink.Message, kind uint16) ([]byte, error) {
	const header = 4 // struct nfgenmsg
	if len(m.Data) < header {
		return nil, fmt.Errorf("cannot read nftables answer of %d bytes", len(m.Data))
	}
	attributes, err := netlink.UnmarshalAttributes(m.Data[header:])
	if err != nil {
		return nil, fmt.Errorf("cannot read nftables answer: %w", err)
	}
	for _, a := range attributes {
		if a.Type == kind {
			return a.Data, nil
		}
	}
	return nil, fmt.Errorf("cannot find attribute %d in nftables answer", kind)
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
