package injection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// dialTimeout is how long a connection may take that is dropped on the way.
	dialTimeout = 5 * time.Second

	internetPort = 443
	appPort      = 8080
)

// internet is a host somewhere. It answers whoever calls with the address that
// it sees, and remembers it.
type internet struct {
	*namespace

	mu      sync.Mutex
	callers map[netip.Addr]int
}

func newInternet(n *node) (*internet, error) {
	ns, err := newNamespace("internet")
	if err != nil {
		return nil, err
	}
	i := &internet{namespace: ns, callers: map[netip.Addr]int{}}
	if err := n.attach(ns, "internet", netip.MustParseAddr(internet4), netip.MustParseAddr(internet6)); err != nil {
		return nil, err
	}
	for _, port := range []int{internetPort, 53} {
		if err := i.listenTCP(port); err != nil {
			return nil, err
		}
		if err := i.listenUDP(port); err != nil {
			return nil, err
		}
	}
	return i, nil
}

func (i *internet) listenTCP(port int) error {
	l, err := i.listen(fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	go serve(l, func(c net.Conn) { _, _ = io.WriteString(c, i.called(c.RemoteAddr())+"\n") })
	return nil
}

func (i *internet) listenUDP(port int) error {
	c, err := i.packets("udp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 1500)
		for {
			_, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(i.called(from)), from)
		}
	}()
	return nil
}

// called notes who called.
func (i *internet) called(from net.Addr) string {
	a := netip.MustParseAddrPort(from.String()).Addr().Unmap()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.callers[a]++
	return a.String()
}

// seen returns who has called since the last time.
func (i *internet) seen() map[netip.Addr]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := i.callers
	i.callers = map[netip.Addr]int{}
	return out
}

// exits asks the host on the internet by which addresses a pod is seen, over
// TCP and UDP and both families.
func exits(from *namespace) ([]netip.Addr, error) {
	seen := map[netip.Addr]bool{}
	for _, network := range []string{"tcp", "udp"} {
		for _, host := range []string{internet4, internet6} {
			a, err := ask(from, network, host)
			if err != nil {
				return nil, err
			}
			seen[a] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), netip.Addr.Compare), nil
}

// ask asks once by which address one is seen.
func ask(from *namespace, network, host string) (netip.Addr, error) {
	c, err := from.dial(context.Background(), network, net.JoinHostPort(host, fmt.Sprint(internetPort)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(dialTimeout))
	if network == "udp" {
		if _, err := c.Write([]byte("?")); err != nil {
			return netip.Addr{}, err
		}
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%s %s: %w", network, host, err)
	}
	line := b[:n]
	if network == "tcp" {
		line = line[:n-1]
	}
	return netip.ParseAddr(string(line))
}

// app is what runs in a pod and talks to the internet all the time, by every
// means: new connections and old flows, TCP, UDP, DNS and echo requests, IPv4
// and IPv6. It stands for what users run, and minds no error.
type app struct {
	stop    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	answers map[netip.Addr]int // by who it was told to be
	last    time.Time
}

// interval is how often an app tries each of its means.
const interval = 50 * time.Millisecond

// startApp starts an app in a pod.
func startApp(in *namespace) (*app, error) {
	a := &app{stop: make(chan struct{}), answers: map[netip.Addr]int{}}
	for _, host := range []string{internet4, internet6} {
		network := map[bool]string{true: "4", false: "6"}[netip.MustParseAddr(host).Is4()]
		for _, port := range []string{"53", fmt.Sprint(internetPort)} {
			if err := a.datagrams(in, "udp"+network, net.JoinHostPort(host, port)); err != nil {
				return nil, err
			}
		}
		echo := "ip4:icmp"
		if network == "6" {
			echo = "ip6:ipv6-icmp"
		}
		if err := a.echoes(in, echo, host); err != nil {
			return nil, err
		}
		a.connects(in, net.JoinHostPort(host, fmt.Sprint(internetPort)))
	}
	return a, nil
}

// end ends the app.
func (a *app) end() {
	close(a.stop)
	a.running.Wait()
}

// every calls f again and again.
func (a *app) every(f func()) {
	a.running.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-a.stop:
				return
			case <-ticker.C:
				f()
			}
		}
	})
}

// datagrams sends from one socket all the time: a flow that goes on whatever
// happens to the routes.
func (a *app) datagrams(in *namespace, network, address string) error {
	c, err := in.packets(network, ":0")
	if err != nil {
		return err
	}
	to, err := net.ResolveUDPAddr(network, address)
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 64)
		for {
			n, _, err := c.ReadFrom(b)
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil:
				time.Sleep(time.Millisecond)
			default:
				a.answered(string(b[:n]))
			}
		}
	}()
	go func() {
		<-a.stop
		_ = c.Close()
	}()
	a.every(func() { _, _ = c.WriteTo([]byte("?"), to) })
	return nil
}

// echoes sends echo requests.
func (a *app) echoes(in *namespace, network, host string) error {
	c, err := in.packets(network, "")
	if err != nil {
		return err
	}
	// With the checksum of IPv4. That of IPv6 is the kernel's to make.
	request := []byte{8, 0, 0x80, 0x87, 0x77, 0x77, 0, 1}
	if netip.MustParseAddr(host).Is6() {
		request[0] = 128
	}
	go func() {
		<-a.stop
		_ = c.Close()
	}()
	a.every(func() { _, _ = c.WriteTo(request, &net.IPAddr{IP: net.ParseIP(host)}) })
	return nil
}

// connects opens connections.
func (a *app) connects(in *namespace, address string) {
	dialer := net.Dialer{Timeout: 500 * time.Millisecond}
	a.every(func() {
		_ = in.within(func() {
			c, err := dialer.Dial("tcp", address)
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(time.Second))
			b := make([]byte, 64)
			if n, err := c.Read(b); err == nil && n > 1 {
				a.answered(string(b[:n-1]))
			}
		})
	})
}

func (a *app) answered(as string) {
	caller, err := netip.ParseAddr(as)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[caller]++
	a.last = time.Now()
}

// identities returns as whom the app was seen since the last time.
func (a *app) identities() map[netip.Addr]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.answers
	a.answers = map[netip.Addr]int{}
	return out
}

// answeredSince waits for an answer after a moment.
func (a *app) answeredSince(after time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last.Before(after) {
		return fmt.Errorf("the app has had no answer from the internet for %s", time.Since(a.last).Round(time.Millisecond))
	}
	return nil
}

// clusterCheck is what has to work in a pod all the time, whatever happens to the
// tunnel: what stays in the cluster goes around it.
type clusterCheck struct {
	name string
	try  func() error
}

// watcher makes all checks again and again.
type watcher struct {
	stop    chan struct{}
	running sync.WaitGroup
	// paused is held for reading by each check.
	paused sync.RWMutex

	mu     sync.Mutex
	passed map[string]int
	failed []string
}

func watch(checks []clusterCheck) *watcher {
	w := &watcher{stop: make(chan struct{}), passed: map[string]int{}}
	for _, c := range checks {
		w.running.Go(func() {
			for {
				w.check(c)
				select {
				case <-w.stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	return w
}

func (w *watcher) check(c clusterCheck) {
	w.paused.RLock()
	defer w.paused.RUnlock()
	start := time.Now()
	err := c.try()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.passed[c.name]++
		return
	}
	w.failed = append(w.failed, fmt.Sprintf("%s %s after %s: %v", start.Format("05.000"), c.name, time.Since(start).Round(time.Millisecond), err))
}

// end returns how often each check has passed, and what failed.
func (w *watcher) end() (passed map[string]int, failed []string) {
	close(w.stop)
	w.running.Wait()
	return w.passed, w.failed
}

// serveApp is what runs in a pod and is asked over HTTP, by the kubelet and
// others.
func serveApp(in *namespace) error {
	l, err := in.listen(fmt.Sprintf(":%d", appPort))
	if err != nil {
		return err
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, r.RemoteAddr)
		}))
	}()
	return nil
}
