package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/statefile"
)

// byNetwork is what peers have by their networks. Where one network lies within
// another, the smaller one decides, as on the device.
type byNetwork[T any] struct {
	values  map[netip.Prefix]T
	lengths []int // of the prefixes, the longest first
}

func newByNetwork[T any](values map[netip.Prefix]T) byNetwork[T] {
	seen := map[int]bool{}
	for n := range values {
		seen[n.Bits()] = true
	}
	return byNetwork[T]{values: values, lengths: slices.SortedFunc(maps.Keys(seen), func(a, b int) int { return cmp.Compare(b, a) })}
}

// of returns what there is for a network, and false where there is nothing.
func (x byNetwork[T]) of(n netip.Prefix) (T, bool) {
	for _, bits := range x.lengths {
		if bits > n.Bits() {
			continue
		}
		if p, err := n.Addr().Prefix(bits); err == nil {
			if v, there := x.values[p]; there {
				return v, true
			}
		}
	}
	var none T
	return none, false
}

// owners are the names of the peers.
type owners struct{ byNetwork[string] }

// unknownOwner is no name that a peer can have.
const unknownOwner = "unknown"

func ownersOfPeers(c *config.Config) owners {
	names := make(map[netip.Prefix]string, 2*len(c.Peers))
	for _, p := range c.Peers {
		for _, n := range p.AllowedIPs() {
			names[n] = config.PeerName(p)
		}
	}
	return owners{newByNetwork(names)}
}

// ownersOnDevice are those of an agent that has left no more than its device: who
// has the same key there was there before. All else in the pools may have been
// anybody's. Networks beyond them that no peer has now may be a pod's, whose
// connections are not looked at here.
func ownersOnDevice(c *config.Config, device map[netip.Prefix]wgtypes.Key) owners {
	names := map[netip.Prefix]string{}
	for _, a := range c.Addresses {
		names[a.Masked()] = unknownOwner
	}
	byKey := make(map[wgtypes.Key]string, len(c.Peers))
	for _, p := range c.Peers {
		byKey[p.PublicKey.Key] = config.PeerName(p)
	}
	now := ownersOfPeers(c)
	for n, k := range device {
		name, there := byKey[k]
		if _, has := now.of(n); there || has || len(c.PodClasses) == 0 {
			names[n] = cmp.Or(name, unknownOwner)
		}
	}
	for _, p := range c.Pods {
		for _, n := range p.AllowedIPs() {
			if device[n] == p.PublicKey.Key {
				delete(names, n)
			}
		}
	}
	return owners{newByNetwork(names)}
}

// left tells whether another has a network now than before. What nobody has is
// left to nobody, and no one gets what is sent there, so it can wait, except where
// it is not known whose it was.
func (o owners) left(to owners, n netip.Prefix) bool {
	before, had := o.of(n)
	after, has := to.of(n)
	return had && before != after && (has || before == unknownOwner)
}

// maxFormer is of how many networks it is remembered who had them last.
const maxFormer = 10_000

// remember returns the owners with those of what nobody has now, who had it last.
// Where these are too many they are not known any more.
func (o owners) remember(to owners) (before, all owners) {
	former := map[netip.Prefix]string{}
	for n, name := range o.values {
		if _, has := to.of(n); !has && name != unknownOwner {
			former[n] = name
		}
	}
	if len(former) > maxFormer {
		before = owners{newByNetwork(maps.Clone(o.values))}
		for n := range former {
			before.values[n] = unknownOwner
		}
		return before, to
	}
	maps.Copy(former, to.values)
	return o, owners{newByNetwork(former)}
}

// anyLeft tells whether there is a network that left makes true.
func (o owners) anyLeft(to owners) bool {
	for _, names := range []map[netip.Prefix]string{o.values, to.values} {
		for n := range names {
			if o.left(to, n) {
				return true
			}
		}
	}
	return false
}

// forgetLeft makes the kernel forget the connections of what passes from one peer
// to another, so that this one gets nothing that is meant for the other. A peer
// goes by its name: with another key it is the same one. To look for connections
// holds up packets for milliseconds, so it is not done where nobody gets anything.
func (g *gateway) forgetLeft(c *config.Config) error {
	before, after := g.owners, ownersOfPeers(c)
	if before.values == nil {
		before = ownersOnDevice(c, g.onDevice)
	}
	before, all := before.remember(after)
	g.had = before
	if before.anyLeft(after) {
		err := route.ForgetFlows(func(f route.Flow) bool {
			return slices.ContainsFunc(f.Ends[:], func(a netip.Addr) bool {
				return before.left(after, netip.PrefixFrom(a, a.BitLen()))
			})
		})
		if err != nil {
			return err
		}
	}
	g.owners = all
	g.kept(&g.unkeptOwners, "cannot keep owners of addresses for a restart", g.ownersFile.write(all.values))
	return nil
}

// kept says once that a file could not be written: each sync tries again.
func (g *gateway) kept(unkept *bool, warning string, err error) {
	if err != nil && !*unkept {
		g.log.Warn(warning, "error", err)
	}
	*unkept = err != nil
}

// readOwners asks the device, where nobody else knows who had what. It belongs
// before anything is taken from it.
func (g *gateway) readOwners() error {
	if g.owners.values != nil || g.onDevice != nil {
		return nil
	}
	had, err := g.device.Owners()
	if err != nil {
		return err
	}
	g.onDevice = had
	return nil
}

// restoreOwners takes over who had what when the agent before this one ended.
// The kernel has its connections still. Where nobody knows, they may be
// anybody's, but for what the device tells.
func (g *gateway) restoreOwners(path string) {
	g.ownersFile.path = path
	names, err := g.ownersFile.read()
	if err != nil {
		g.log.Warn("cannot restore owners of addresses, their connections are forgotten", "error", err)
	}
	g.owners = owners{newByNetwork(names)}
}

// ownersFile keeps the owners over a restart of the agent: after a line with the
// version, a line for each network, with its owner. There may be thousands, and
// all are written when one changes.
type ownersFile struct {
	path    string
	written map[netip.Prefix]string
}

const ownersVersion = "version 1"

// read returns nil where there is no file.
func (f *ownersFile) read() (map[netip.Prefix]string, error) {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read owners: %w", err)
	}
	version, lines, _ := strings.Cut(string(b), "\n")
	if version != ownersVersion {
		return nil, fmt.Errorf("cannot decode owners: %q is not known", version)
	}
	names := map[netip.Prefix]string{}
	for line := range strings.Lines(lines) {
		network, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, err := netip.ParsePrefix(network)
		if err != nil {
			return nil, fmt.Errorf("cannot decode owners: %w", err)
		}
		names[n] = name
	}
	return names, nil
}

// write replaces the file if the owners differ from those it wrote last. Where it
// cannot be written, there is none: a wrong one is worse.
func (f *ownersFile) write(names map[netip.Prefix]string) error {
	if f.written != nil && maps.Equal(f.written, names) {
		return nil
	}
	f.written = nil
	const line = 64
	b := make([]byte, 0, line*(len(names)+1))
	b = append(b, ownersVersion+"\n"...)
	for n, name := range names {
		b = n.AppendTo(b)
		b = append(b, ' ')
		b = append(b, name...)
		b = append(b, '\n')
	}
	if err := statefile.Write(f.path, b); err != nil {
		_ = os.Remove(f.path)
		return fmt.Errorf("cannot write owners: %w", err)
	}
	f.written = names
	return nil
}
