package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/wireguardgateway/function-wireguard-gateway/test/gluetun"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// portFile is where other containers of the pod find the forwarded port.
const portFile = "/tmp/gluetun/forwarded_port"

// vpn is gluetun's loop around its tunnel.
type vpn struct {
	settings gluetun.Settings
	account  account
	control  *gluetun.Control
	health   *health
}

// account is what the user's Secret has.
type account struct {
	key, psk  wireguard.Key
	addresses []string
}

// readAccount reads what only gluetun reads.
func readAccount(env map[string]string, n gluetun.Network) (account, error) {
	a := account{}
	if env["VPN_SERVICE_PROVIDER"] != "custom" || env["VPN_TYPE"] != "wireguard" {
		return a, fmt.Errorf("the stand-in knows no %s of %s", env["VPN_TYPE"], env["VPN_SERVICE_PROVIDER"])
	}
	read := func(name string) string {
		b, _ := os.ReadFile(env[name+"_SECRETFILE"])
		return strings.TrimSpace(string(b))
	}
	var err error
	if a.key, err = wireguard.ParseKey(read("WIREGUARD_PRIVATE_KEY")); err != nil {
		return a, fmt.Errorf("cannot read the private key: %w", err)
	}
	if psk := read("WIREGUARD_PRESHARED_KEY"); psk != "" {
		if a.psk, err = wireguard.ParseKey(psk); err != nil {
			return a, fmt.Errorf("cannot read the preshared key: %w", err)
		}
	}
	a.addresses = gluetun.List(read("WIREGUARD_ADDRESSES"))
	if len(a.addresses) == 0 {
		return a, fmt.Errorf("the tunnel has no address")
	}
	if a.six() && n.Gateway6 == "" {
		return a, fmt.Errorf("interface address is IPv6 but IPv6 is not supported: %v", a.addresses)
	}
	return a, nil
}

// six tells whether the tunnel has IPv6.
func (a account) six() bool {
	return slices.ContainsFunc(a.addresses, func(s string) bool { return strings.Contains(s, ":") })
}

// loop starts the tunnel again and again until it is told to end. A tunnel that
// cannot be made is tried again later each time, one that passes nothing at once.
func (v *vpn) loop(ctx context.Context) {
	const wait = 15 * time.Second
	retry := wait
	for ctx.Err() == nil {
		d, err := v.up()
		if err != nil {
			log.Printf("%v; retrying in %v", err, retry)
			sleep(ctx, retry)
			retry *= 2
			continue
		}
		retry = wait
		v.control.Running(true)
		crashed := v.attend(ctx, d)
		v.forget()
		if err := execute(gluetun.Undivert()...); err != nil {
			log.Print(err)
		}
		time.Sleep(200 * time.Millisecond)
		d.Close()
		if crashed {
			log.Printf("the device is gone; retrying in %v", retry)
			sleep(ctx, retry)
		}
	}
}

// up brings up the tunnel: the device first, and the rules to it last.
func (v *vpn) up() (*device.Device, error) {
	env := v.settings.Env
	mtu, err := strconv.Atoi(env["WIREGUARD_MTU"])
	if err != nil {
		return nil, fmt.Errorf("cannot read the MTU: %w", err)
	}
	public, err := wireguard.ParseKey(env["WIREGUARD_PUBLIC_KEY"])
	if err != nil {
		return nil, fmt.Errorf("cannot read the server's key: %w", err)
	}
	t, err := tun.CreateTUN(gluetun.Device, mtu)
	if err != nil {
		return nil, fmt.Errorf("cannot make the device: %w", err)
	}
	d := device.NewDevice(t, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, "wireguard: "))
	err = d.IpcSet(fmt.Sprintf("private_key=%s\nfwmark=%d\npublic_key=%s\npreshared_key=%s\nendpoint=%s\nallowed_ip=0.0.0.0/0\nallowed_ip=::/0\n",
		hex.EncodeToString(v.account.key.Key[:]), gluetun.Mark, hex.EncodeToString(public.Key[:]), hex.EncodeToString(v.account.psk.Key[:]),
		endpoint(env["WIREGUARD_ENDPOINT_IP"], env["WIREGUARD_ENDPOINT_PORT"])))
	if err == nil {
		err = d.Up()
	}
	if err == nil {
		err = execute(append(gluetun.Address(v.settings, v.account.addresses...), gluetun.Divert(v.account.six())...)...)
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("cannot set up the tunnel: %w", err)
	}
	return d, nil
}

func endpoint(ip, port string) string {
	if strings.Contains(ip, ":") {
		ip = "[" + ip + "]"
	}
	return ip + ":" + port
}

// attend returns when the tunnel is to be started again, and whether its device
// is gone.
func (v *vpn) attend(ctx context.Context, d *device.Device) (crashed bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		if err := check(ctx, startupTimeout); err != nil {
			ended <- fmt.Errorf("startup check: %w", err)
			return
		}
		v.health.set(nil)
		v.learn(ctx)
		ended <- watch(ctx)
	}()
	select {
	case <-d.Wait():
		return true
	case err := <-ended:
		if ctx.Err() == nil {
			log.Print("restarting the VPN: ", err)
			v.health.set(err)
		}
	case <-ctx.Done():
	}
	return false
}

// learn asks for the exit's address, and for a port where one is wanted.
func (v *vpn) learn(ctx context.Context) {
	ip, err := ask(ctx, "/ip")
	if err != nil {
		log.Print("cannot learn the public address: ", err)
		return
	}
	var ports []int
	if v.settings.Env["VPN_PORT_FORWARDING"] == "on" {
		answer, err := ask(ctx, "/port")
		if err == nil {
			ports = []int{0}
			ports[0], err = strconv.Atoi(answer)
		}
		if err == nil {
			err = os.WriteFile(portFile, []byte(answer), 0o644)
		}
		if err != nil {
			log.Print("cannot learn the forwarded port: ", err)
		}
	}
	log.Printf("public address %s, ports %v", ip, ports)
	v.control.Exit(ip, ports...)
}

// forget takes back what learn has told.
func (v *vpn) forget() {
	v.control.Exit("")
	v.control.Running(false)
	_ = os.Remove(portFile)
}

// ask asks the internet through the tunnel.
func ask(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+internet+path, http.NoBody)
	if err != nil {
		return "", err
	}
	rsp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = rsp.Body.Close() }()
	b, err := io.ReadAll(rsp.Body)
	if err == nil && rsp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", rsp.Status, b)
	}
	return strings.TrimSpace(string(b)), err
}
