package sidecar

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/ipnet"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// deviceConfig is what the device itself needs to know.
func (s *sidecar) deviceConfig() *config.Config {
	return &config.Config{GatewayConfig: wireguard.GatewayConfig{
		PrivateKey:     wireguard.PodKey(s.enrolment.ClassKey, s.pod.uid),
		ListenPort:     wireguard.ClientPort,
		Implementation: s.enrolment.Implementation,
	}}
}

// renew makes the gateway the device's only peer, as a new one: whatever
// session there was is gone, and a handshake starts at once, with the Service's
// address, wherever the gateway was seen last.
func (s *sidecar) renew(now time.Time) error {
	address := s.addresses[s.tunnel.attempts%len(s.addresses)]
	key, keepalive := s.enrolment.GatewayPublicKey.Key, s.enrolment.keepalive()
	err := s.wireguard.ConfigureDevice(wireguard.ClientDevice, wgtypes.Config{ReplacePeers: true, Peers: []wgtypes.PeerConfig{{
		PublicKey:                   key,
		Endpoint:                    net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, s.enrolment.port)),
		PersistentKeepaliveInterval: &keepalive,
		ReplaceAllowedIPs:           true,
		AllowedIPs:                  ipnet.List(s.pod.all()),
	}}})
	if err != nil {
		return fmt.Errorf("cannot set the gateway as peer: %w", err)
	}
	s.health.renewed()
	s.tunnel.renewed(now)
	return nil
}

// isPeer tells whether the device has the gateway as its only peer, as renew
// makes it. Its endpoint may be another by now.
func (s *sidecar) isPeer(d *wgtypes.Device) bool {
	if len(d.Peers) != 1 {
		return false
	}
	p := d.Peers[0]
	return p.PublicKey == s.enrolment.GatewayPublicKey.Key && p.PersistentKeepaliveInterval == s.enrolment.keepalive() &&
		p.PresharedKey == wgtypes.Key{} && sameNets(p.AllowedIPs, s.pod.all())
}

// isDevice tells whether the device is as it was configured.
func (s *sidecar) isDevice(d *wgtypes.Device) bool {
	want := s.deviceConfig()
	return d.PrivateKey == want.PrivateKey.Key && d.ListenPort == want.ListenPort && d.FirewallMark == wireguard.FirewallMark
}

// configure repeats what the device was configured to be.
func (s *sidecar) configure() error {
	want := s.deviceConfig()
	port, mark := want.ListenPort, wireguard.FirewallMark
	err := s.wireguard.ConfigureDevice(wireguard.ClientDevice, wgtypes.Config{PrivateKey: &want.PrivateKey.Key, ListenPort: &port, FirewallMark: &mark})
	if err != nil {
		return fmt.Errorf("cannot configure device %s: %w", wireguard.ClientDevice, err)
	}
	return nil
}

func sameNets(have []net.IPNet, want []netip.Prefix) bool {
	return len(have) == len(want) && !slices.ContainsFunc(want, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(have, func(n net.IPNet) bool { return ipnet.Prefix(&n) == p })
	})
}
