package client

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// dnsServer answers for the names that it has, and that there is no other.
type dnsServer struct {
	mu    sync.Mutex
	names map[string][]string
	delay time.Duration
	asked int
	conn  net.PacketConn
}

func (h *host) serveDNS(names map[string][]string) *dnsServer {
	h.T.Helper()
	d := &dnsServer{names: names}
	var err error
	h.Within(func() { d.conn, err = net.ListenPacket("udp", "0.0.0.0:53") })
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { _ = d.conn.Close() })
	go d.serve()
	return d
}

func (d *dnsServer) set(name string, addresses ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[name+"."] = addresses
}

// slow makes each answer take a while.
func (d *dnsServer) slow(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = delay
}

func (d *dnsServer) serve() {
	b := make([]byte, 1500)
	for {
		n, from, err := d.conn.ReadFrom(b)
		if err != nil {
			return
		}
		q := append([]byte(nil), b[:n]...)
		d.mu.Lock()
		delay := d.delay
		d.asked++
		d.mu.Unlock()
		time.AfterFunc(delay, func() {
			if a := d.answer(q); a != nil {
				_, _ = d.conn.WriteTo(a, from)
			}
		})
	}
}

// answer speaks as much of RFC 1035 as a stub resolver needs.
func (d *dnsServer) answer(q []byte) []byte {
	if len(q) < 12 {
		return nil
	}
	name, i := "", 12
	for i < len(q) && q[i] != 0 {
		l := int(q[i])
		if i+1+l > len(q) {
			return nil
		}
		name += string(q[i+1:i+1+l]) + "."
		i += 1 + l
	}
	if i+5 > len(q) {
		return nil
	}
	kind := binary.BigEndian.Uint16(q[i+1:])
	question := q[12 : i+5]
	d.mu.Lock()
	addresses, there := d.names[strings.ToLower(name)]
	d.mu.Unlock()
	var records [][]byte
	for _, s := range addresses {
		a := netip.MustParseAddr(s)
		if a.Is4() && kind == 1 || a.Is6() && kind == 28 {
			records = append(records, a.AsSlice())
		}
	}
	flags := uint16(0x8580)
	if !there {
		flags |= 3 // NXDOMAIN
	}
	out := append([]byte(nil), q[:2]...)
	out = binary.BigEndian.AppendUint16(out, flags)
	for _, n := range []int{1, len(records), 0, 0} {
		out = binary.BigEndian.AppendUint16(out, uint16(n))
	}
	out = append(out, question...)
	for _, r := range records {
		out = append(out, 0xc0, 12)
		out = binary.BigEndian.AppendUint16(out, kind)
		out = binary.BigEndian.AppendUint16(out, 1)
		out = binary.BigEndian.AppendUint32(out, 5)
		out = binary.BigEndian.AppendUint16(out, uint16(len(r)))
		out = append(out, r...)
	}
	return out
}

// lookup asks the nameserver as a process of the pod does, and returns the
// first address or what went wrong.
func (h *host) lookup(name string) string {
	h.T.Helper()
	var c net.Conn
	var err error
	h.Within(func() { c, err = net.Dial("udp", nameserver4+":53") })
	if err != nil {
		return reason(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(answerTime))
	q := []byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for l := range strings.SplitSeq(name, ".") {
		q = append(append(q, byte(len(l))), l...)
	}
	if _, err := c.Write(append(q, 0, 0, 1, 0, 1)); err != nil {
		return reason(err)
	}
	b := make([]byte, 1500)
	n, err := c.Read(b)
	if err != nil {
		return reason(err)
	}
	if n < 4 {
		return "no answer"
	}
	return netip.AddrFrom4([4]byte(b[n-4 : n])).String()
}
