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

// Flow is a connection that the kernel knows.
type Flow struct {
	// Ends are the sources and destinations of both directions, which differ where
	// an address is translated. One that cannot be read is the zero value.
	Ends [4]netip.Addr
	// Source has opened it, and Destination is who answers: where its address was
	// translated, the one that it was translated to. A protocol without ports has
	// port 0.
	Source      netip.Addr
	Destination netip.AddrPort
	Protocol    uint8
	Mark        uint32
}

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
	return ForgetFlows(func(f Flow) bool {
		return slices.ContainsFunc(f.Ends[:], func(a netip.Addr) bool { return of[a] })
	})
}

// ForgetFlows makes the kernel forget the connections for which this is true. It
// reads all there are, which may be many thousands. One that stays does not stop it
// from forgetting the others.
func ForgetFlows(which func(Flow) bool) error {
	const attempts = 5
	for range attempts {
		flows, err := list(which)
		if cannotForget(err) {
			return fmt.Errorf("%w: %w", ErrCannotForget, err)
		}
		if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
			return fmt.Errorf("cannot list connections: %w", err)
		}
		left := forgetAll(flows, flow.forget)
		// A table that changed meanwhile may not have been read in full.
		if err == nil {
			return left
		}
	}
	return errors.New("cannot list connections: they change too fast")
}

// forgetAll tries all, and returns the first error, since there may be many. The
// kernel keeps a connection as long as it is offloaded, which counts last.
func forgetAll(flows []flow, forget func(flow) error) error {
	var failed, busy error
	for _, f := range flows {
		switch err := forget(f); {
		case err == nil:
		case errors.Is(err, unix.EBUSY):
			busy = fmt.Errorf("%w: %w", ErrCannotForget, err)
		case failed == nil:
			failed = fmt.Errorf("cannot delete connection: %w", err)
		}
	}
	if failed != nil {
		return failed
	}
	return busy
}

// ErrCannotForget tells that the kernel goes on with connections whatever it is
// asked: with all of them where it has no nf_conntrack_netlink, or with those
// that were offloaded.
var ErrCannotForget = errors.New("this kernel cannot forget connections")

// cannotForget tells that nobody in the kernel knows the request.
func cannotForget(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// flow is a connection, as the kernel writes it: a header, which begins with the
// family, and attributes.
type flow []byte

// Numbers of linux/netfilter/nfnetlink_conntrack.h.
const (
	flowHeader    = 4 // struct nfgenmsg
	tupleOriginal = 1 // CTA_TUPLE_ORIG
	tupleReply    = 2 // CTA_TUPLE_REPLY
	flowMark      = 8 // CTA_MARK
	tupleIP       = 1 // CTA_TUPLE_IP
	tupleProtocol = 2 // CTA_TUPLE_PROTO
	source4       = 1 // CTA_IP_V4_SRC
	destination4  = 2 // CTA_IP_V4_DST
	source6       = 3 // CTA_IP_V6_SRC
	destination6  = 4 // CTA_IP_V6_DST
	protocolNum   = 1 // CTA_PROTO_NUM
	sourcePort    = 2 // CTA_PROTO_SRC_PORT
)

func list(which func(Flow) bool) ([]flow, error) {
	var out []flow
	err := flowRequest(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, unix.AF_UNSPEC).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if f := flow(m); which(f.read()) {
			out = append(out, slices.Clone(f))
		}
		return true
	})
	return out, err
}

func (f flow) read() Flow {
	out := Flow{}
	if len(f) < flowHeader {
		return out
	}
	for kind, value := range attributes(f[flowHeader:]) {
		switch kind {
		case tupleOriginal:
			t := readTuple(value)
			out.Source, out.Protocol = t.source, t.protocol
			out.Ends[0], out.Ends[1] = t.source, t.destination
		case tupleReply:
			t := readTuple(value)
			out.Destination = netip.AddrPortFrom(t.source, t.port)
			out.Ends[2], out.Ends[3] = t.source, t.destination
		case flowMark:
			if len(value) == 4 {
				out.Mark = binary.BigEndian.Uint32(value)
			}
		}
	}
	return out
}

// tuple is one direction of a connection. The port is the source's.
type tuple struct {
	source, destination netip.Addr
	port                uint16
	protocol            uint8
}

func readTuple(b []byte) tuple {
	t := tuple{}
	for kind, value := range attributes(b) {
		switch kind {
		case tupleIP:
			for kind, ip := range attributes(value) {
				a, _ := netip.AddrFromSlice(ip)
				switch kind {
				case source4, source6:
					t.source = a
				case destination4, destination6:
					t.destination = a
				}
			}
		case tupleProtocol:
			for kind, value := range attributes(value) {
				switch {
				case kind == protocolNum && len(value) == 1:
					t.protocol = value[0]
				case kind == sourcePort && len(value) == 2:
					t.port = binary.BigEndian.Uint16(value)
				}
			}
		}
	}
	return t
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

// flowSubsystem is the part of netfilter that knows connections. Tests change it.
var flowSubsystem = unix.NFNL_SUBSYS_CTNETLINK

func flowRequest(operation, flags int, family uint8) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(flowSubsystem<<8|operation, flags)
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
