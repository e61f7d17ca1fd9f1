package dataplane

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Packets that conntrack calls invalid are not masqueraded. They must not show
// a peer's own address to the outside.
func TestInvalidPackets(t *testing.T) {
	w := newWorld(t)
	c := w.client(1)
	w.startAgent(configWith(c.peer))
	c.up()
	if c.pings(server4) == 0 {
		t.Fatal("the tunnel does not work")
	}
	inClear := w.peersInClear()
	send := func() {
		t.Helper()
		for range 5 {
			c.sendRaw(synFin(netip.MustParseAddr("10.8.0.2"), netip.MustParseAddr(server4)))
		}
		// It has gone its way when this has come back.
		_ = c.probe("icmp " + server4)
	}
	send()
	if n := inClear(); n != 0 {
		t.Errorf("%d packets left with a peer's own address", n)
	}

	// Without our table, and with what is usually written by hand, they do. The agent
	// puts it back at once.
	w.gateway.NFT(`table ip usual { chain p { type nat hook postrouting priority 100; ip saddr 10.8.0.0/24 oifname "eth0" masquerade; }; }`)
	const attempts = 20
	for range attempts {
		_, _ = w.gateway.Try("nft", "delete", "table", "inet", "wireguard_gateway")
		send()
		if inClear() > 0 {
			return
		}
	}
	t.Error("nothing left in the clear without the firewall: the test shows nothing")
}

// sendRaw sends an IPv4 packet.
func (h *host) sendRaw(packet []byte) {
	h.T.Helper()
	var err error
	h.Within(func() {
		var fd int
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW); err != nil {
			return
		}
		defer func() { _ = unix.Close(fd) }()
		err = unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte(packet[16:20])})
	})
	if err != nil {
		h.T.Fatal(err)
	}
}

// synFin returns a TCP packet with flags that no connection ever has.
func synFin(from, to netip.Addr) []byte {
	const ihl, size, ttl, synAndFin, dataOffset = 0x45, 40, 64, 0x03, 5 << 4
	p := make([]byte, size)
	p[0], p[8], p[9] = ihl, ttl, unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(p[2:], size)
	copy(p[12:], from.AsSlice())
	copy(p[16:], to.AsSlice())
	tcp := p[20:]
	binary.BigEndian.PutUint16(tcp, 40000)
	binary.BigEndian.PutUint16(tcp[2:], 443)
	tcp[12], tcp[13] = dataOffset, synAndFin
	binary.BigEndian.PutUint16(tcp[14:], 65535)
	binary.BigEndian.PutUint16(tcp[16:], tcpChecksum(from, to, tcp))
	return p
}

// tcpChecksum is that of RFC 9293, section 3.1.
func tcpChecksum(from, to netip.Addr, tcp []byte) uint16 {
	pseudo := append(append(from.AsSlice(), to.AsSlice()...), 0, unix.IPPROTO_TCP, 0, byte(len(tcp)))
	sum := uint32(0)
	for _, b := range [][]byte{pseudo, tcp} {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
