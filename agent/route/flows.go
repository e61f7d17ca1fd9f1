package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Forget makes the kernel forget every connection of these addresses. Who has
// one of them next would get the answers to the one before: the kernel still
// knows whom it has to pass them on to.
func Forget(addresses []netip.Addr) error {
	if len(addresses) == 0 {
		return nil
	}
	of := make(map[netip.Addr]bool, len(addresses))
	for _, a := range addresses {
		of[a] = true
	}
	const attempts = 5
	for range attempts {
		flows, err := flowsOf(of)
		if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
			return fmt.Errorf("cannot list connections: %w", err)
		}
		for _, f := range flows {
			if err := f.forget(); err != nil {
				return fmt.Errorf("cannot delete connection: %w", err)
			}
		}
		// A table that changed meanwhile may not have been read in full.
		if err == nil {
			return nil
		}
	}
	return errors.New("cannot list connections: they change too fast")
}

// flow is a connection, as the kernel writes it: a header, which begins with the
// family, and attributes.
type flow []byte

// Numbers of linux/netfilter/nfnetlink_conntrack.h.
const (
	flowHeader    = 4 // struct nfgenmsg
	tupleOriginal = 1 // CTA_TUPLE_ORIG
	tupleReply    = 2 // CTA_TUPLE_REPLY
	tupleIP       = 1 // CTA_TUPLE_IP
	lastIP        = 4 // CTA_IP_V6_DST, after the other source and destinations
)

// flowsOf reads all connections, of which there may be many thousands, and keeps
// those of the addresses.
func flowsOf(of map[netip.Addr]bool) ([]flow, error) {
	var out []flow
	err := flowRequest(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, unix.AF_UNSPEC).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if f := flow(m); f.isOf(of) {
			out = append(out, slices.Clone(f))
		}
		return true
	})
	return out, err
}

// isOf tells whether any end of the connection, in any direction, is one of the
// addresses.
func (f flow) isOf(of map[netip.Addr]bool) bool {
	if len(f) < flowHeader {
		return false
	}
	for kind, tuple := range attributes(f[flowHeader:]) {
		if kind != tupleOriginal && kind != tupleReply {
			continue
		}
		for kind, ips := range attributes(tuple) {
			if kind != tupleIP {
				continue
			}
			for kind, ip := range attributes(ips) {
				if a, ok := netip.AddrFromSlice(ip); ok && kind <= lastIP && of[a] {
					return true
				}
			}
		}
	}
	return false
}

// forget deletes the connection, which may be gone by now.
func (f flow) forget() error {
	r := flowRequest(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, f[0])
	r.AddRawData(f[flowHeader:])
	if _, err := r.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

func flowRequest(operation, flags int, family uint8) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|operation, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return r
}

// attributes are the netlink attributes that a message holds.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
			if size < unix.SizeofNlAttr || size > len(b) || !yield(kind, b[unix.SizeofNlAttr:size]) {
				return
			}
			b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
		}
	}
}
