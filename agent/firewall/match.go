package firewall

import (
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// The functions below return parts of rules, named after their form in nft(8).
// They use register 1 only.
const register = 1

// match joins parts to a rule.
func match(parts ...[]expr.Any) rule {
	r := rule{}
	for _, p := range parts {
		r = append(r, p...)
	}
	return r
}

func compare(op expr.CmpOp, data []byte) *expr.Cmp {
	return &expr.Cmp{Op: op, Register: register, Data: data}
}

func meta(key expr.MetaKey, data []byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: register}, compare(expr.CmpOpEq, data)}
}

// ifname pads an interface name to the 16 bytes that the kernel compares.
func ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

func iif(name string) []expr.Any { return meta(expr.MetaKeyIIFNAME, ifname(name)) }
func oif(name string) []expr.Any { return meta(expr.MetaKeyOIFNAME, ifname(name)) }

// fromTunnel and toTunnel match the device by its name and by its type, which
// no interface of a network has.
func fromTunnel() []expr.Any {
	return append(iif(wireguard.ClientDevice), meta(expr.MetaKeyIIFTYPE, binaryutil.NativeEndian.PutUint16(unix.ARPHRD_NONE))...)
}

func toTunnel() []expr.Any {
	return append(oif(wireguard.ClientDevice), meta(expr.MetaKeyOIFTYPE, binaryutil.NativeEndian.PutUint16(unix.ARPHRD_NONE))...)
}

// family matches packets of one IP version. In a table of family inet it has
// to come before anything that looks into the IP header.
func family(v4 bool) []expr.Any {
	proto := byte(unix.NFPROTO_IPV6)
	if v4 {
		proto = unix.NFPROTO_IPV4
	}
	return meta(expr.MetaKeyNFPROTO, []byte{proto})
}

func l4proto(proto byte) []expr.Any {
	return meta(expr.MetaKeyL4PROTO, []byte{proto})
}

// icmpv6 matches one type of ICMPv6.
func icmpv6(kind byte) []expr.Any {
	return append(match(family(false), l4proto(unix.IPPROTO_ICMPV6)),
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		compare(expr.CmpOpEq, []byte{kind}))
}

// address loads the source or destination address.
func address(v4, source bool) *expr.Payload {
	// Offsets of RFC 791 and RFC 8200.
	offset, length := uint32(24), uint32(16)
	switch {
	case v4 && source:
		offset, length = 12, 4
	case v4:
		offset, length = 16, 4
	case source:
		offset = 8
	}
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}
}

// daddr matches destinations in a network. An invalid prefix matches all.
func daddr(p netip.Prefix) []expr.Any {
	if !p.IsValid() {
		return nil
	}
	v4 := p.Addr().Is4()
	parts := family(v4)
	if p.Bits() == 0 {
		return parts
	}
	parts = append(parts, address(v4, false))
	return append(parts, prefix(p)...)
}

// saddr matches sources in a network.
func saddr(p netip.Prefix) []expr.Any {
	v4 := p.Addr().Is4()
	return append(append(family(v4), address(v4, true)), prefix(p)...)
}

// prefix compares the loaded address with a network.
func prefix(p netip.Prefix) []expr.Any {
	size := p.Addr().BitLen() / 8
	mask := make([]byte, size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: uint32(size), Mask: mask, Xor: make([]byte, size)},
		compare(expr.CmpOpEq, p.Addr().AsSlice()),
	}
}

// saddrIn matches sources in a named set.
func saddrIn(set string, v4 bool) []expr.Any {
	return append(family(v4), address(v4, true), &expr.Lookup{SourceRegister: register, SetName: set})
}

// daddrIn matches destinations in a named set.
func daddrIn(set string, v4 bool) []expr.Any {
	return append(family(v4), address(v4, false), &expr.Lookup{SourceRegister: register, SetName: set})
}

// toLocal matches destinations that are addresses of this host.
func toLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: register, FlagDADDR: true, ResultADDRTYPE: true},
		compare(expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)),
	}
}

// saddrVerdict takes the verdict that a named map has for the source.
func saddrVerdict(set string, v4 bool) []expr.Any {
	return append(family(v4), address(v4, true), &expr.Lookup{SourceRegister: register, IsDestRegSet: true, SetName: set})
}

// sport matches TCP's or UDP's source port, after l4proto.
func sport(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2},
		compare(expr.CmpOpEq, binaryutil.BigEndian.PutUint16(port)),
	}
}

// dport matches TCP's or UDP's destination port, after l4proto.
func dport(op expr.CmpOp, r wireguard.PortRange) []expr.Any {
	load := &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
	if r.First == r.Last {
		return []expr.Any{load, compare(op, binaryutil.BigEndian.PutUint16(r.First))}
	}
	return []expr.Any{load, &expr.Range{
		Op: op, Register: register,
		FromData: binaryutil.BigEndian.PutUint16(r.First), ToData: binaryutil.BigEndian.PutUint16(r.Last),
	}}
}

// dns is the port of nameservers.
var dns = wireguard.PortRange{First: 53, Last: 53}

// mark matches packets with this mark.
func mark(m uint32) []expr.Any {
	return meta(expr.MetaKeyMARK, binaryutil.NativeEndian.PutUint32(m))
}

// marked matches packets with any mark.
func marked() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: register}, compare(expr.CmpOpNeq, make([]byte, 4))}
}

// setMark gives the packet the mark.
func setMark(m uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: register, Data: binaryutil.NativeEndian.PutUint32(m)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register},
	}
}

// ctMark matches packets of connections with this mark.
func ctMark(m uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyMARK, Register: register},
		compare(expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(m)),
	}
}

// setCtMark gives the packet's connection the mark.
func setCtMark(m uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: register, Data: binaryutil.NativeEndian.PutUint32(m)},
		&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: register},
	}
}

// ctState matches packets that have any of the given connection states.
func ctState(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: register},
		&expr.Bitwise{
			SourceRegister: register, DestRegister: register, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4),
		},
		compare(expr.CmpOpNeq, make([]byte, 4)),
	}
}

// ctOriginal matches packets in the direction in which their connection was
// opened.
func ctOriginal() []expr.Any {
	const ipCtDirOriginal = 0 // IP_CT_DIR_ORIGINAL
	return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: register}, compare(expr.CmpOpEq, []byte{ipCtDirOriginal})}
}

// ctReply matches packets against the direction in which their connection was
// opened.
func ctReply() []expr.Any {
	const ipCtDirReply = 1 // IP_CT_DIR_REPLY
	return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: register}, compare(expr.CmpOpEq, []byte{ipCtDirReply})}
}

// clampMSS matches TCP's first packets and lowers their maximum segment size
// to what the route takes in both directions. The kernel never raises it.
func clampMSS() rule {
	const (
		flagsOffset = 13 // RFC 9293, section 3.1
		synRst      = 0x02 | 0x04
		syn         = 0x02
		optionMSS   = 2 // RFC 9293, section 3.2
	)
	return match(l4proto(unix.IPPROTO_TCP), []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: flagsOffset, Len: 1},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 1, Mask: []byte{synRst}, Xor: []byte{0}},
		compare(expr.CmpOpEq, []byte{syn}),
		&expr.Rt{Register: register, Key: expr.RtTCPMSS},
		&expr.Byteorder{SourceRegister: register, DestRegister: register, Op: expr.ByteorderHton, Len: 2, Size: 2},
		&expr.Exthdr{SourceRegister: register, Type: optionMSS, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt},
	})
}

func accept() []expr.Any     { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }
func ret() []expr.Any        { return []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}} }
func drop() []expr.Any       { return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}} }
func masquerade() []expr.Any { return []expr.Any{&expr.Masq{}} }

func jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

// reject answers that the traffic is prohibited, so that the client's
// connection fails at once instead of timing out.
func reject() []expr.Any {
	const icmpxAdminProhibited = 3 // NFT_REJECT_ICMPX_ADMIN_PROHIBITED
	return []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: icmpxAdminProhibited}}
}

// counted makes a verdict count in DroppedCounter, and not by itself.
func counted(verdict []expr.Any) []expr.Any {
	return append([]expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: DroppedCounter}}, verdict[1:]...)
}
