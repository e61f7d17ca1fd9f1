package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

// queued is how many datagrams wait for a connection. More are dropped, as a
// network would.
const queued = 256

// claims tell the server what the client wants. They are signed with a key that
// nobody else has, and nobody checks them: the path prefix is all the server
// goes by.
type claims struct {
	ID       string          `json:"id"`
	Protocol json.RawMessage `json:"p"`
	Host     string          `json:"r"`
	Port     uint16          `json:"rp"`
}

// forward opens a tunnel for everyone who sends datagrams to the listener.
func forward(o *options) error {
	listen, err := net.ResolveUDPAddr("udp", o.local)
	if err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp", listen)
	if err != nil {
		return err
	}
	senders := map[string]chan []byte{}
	ended := make(chan string)
	datagrams := make(chan datagram)
	go read(conn, datagrams)
	for {
		select {
		case from := <-ended:
			delete(senders, from)
		case d, ok := <-datagrams:
			if !ok {
				return errors.New("the listener was closed")
			}
			from := d.from.String()
			queue, ok := senders[from]
			if !ok {
				queue = make(chan []byte, queued)
				senders[from] = queue
				go func() {
					if err := tunnel(o, queue, func(b []byte) { _, _ = conn.WriteToUDP(b, d.from) }); err != nil {
						log.Print("the tunnel ended: ", err)
					}
					ended <- from
				}()
			}
			select {
			case queue <- d.payload:
			default:
			}
		}
	}
}

type datagram struct {
	from    *net.UDPAddr
	payload []byte
}

func read(conn *net.UDPConn, into chan<- datagram) {
	defer close(into)
	b := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFromUDP(b)
		if err != nil {
			return
		}
		into <- datagram{from, append([]byte(nil), b[:n]...)}
	}
}

// tunnel is one WebSocket, from the first datagram to the end of either side.
// The next datagram starts another.
func tunnel(o *options, queue <-chan []byte, deliver func([]byte)) error {
	conn, err := connect(o)
	if err != nil {
		return err
	}
	w, err := upgrade(o, conn)
	if err != nil {
		_ = conn.Close()
		return err
	}
	log.Print("connected from ", conn.LocalAddr())
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case b := <-queue:
				if w.send(opBinary, b) != nil {
					_ = conn.Close()
					return
				}
			}
		}
	}()
	err = w.run(o.ping, deliver)
	close(done)
	return err
}

// connect tries until the server is reachable, for five minutes.
func connect(o *options) (net.Conn, error) {
	var err error
	for begin := time.Now(); time.Since(begin) < 5*time.Minute; time.Sleep(time.Second / 2) {
		var conn net.Conn
		if conn, err = dial(o); err == nil {
			return conn, nil
		}
		log.Print("cannot connect: ", err)
	}
	return nil, err
}

func dial(o *options) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	port := o.address.Port()
	if port == "" {
		port = map[string]string{"ws": "80", "wss": "443"}[o.address.Scheme]
	}
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if o.mark != 0 {
			if cerr := raw.Control(func(fd uintptr) {
				err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_MARK, o.mark)
			}); cerr != nil {
				return cerr
			}
		}
		return err
	}}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(o.address.Hostname(), port))
	if err != nil || o.address.Scheme == "ws" {
		return conn, err
	}
	secure := tls.Client(conn, &tls.Config{ServerName: cmp.Or(o.name, o.address.Hostname()), InsecureSkipVerify: !o.verify, NextProtos: []string{"http/1.1"}})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

func upgrade(o *options, conn net.Conn) (*websocket, error) {
	token, err := token(o.remote)
	if err != nil {
		return nil, err
	}
	host := o.address.Hostname()
	if p := o.address.Port(); p != "" && p != "80" && p != "443" {
		host = o.address.Host
	}
	_, err = fmt.Fprintf(conn, "GET /%s/events HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"+
		"Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v1, %s%s\r\n\r\n",
		o.prefix, cmp.Or(o.host, host), base64.StdEncoding.EncodeToString(random(16)), bearer, token)
	if err != nil {
		return nil, err
	}
	reader := bufio.NewReaderSize(conn, 1<<17)
	rsp, err := http.ReadResponse(reader, nil)
	if err != nil {
		return nil, err
	}
	_ = rsp.Body.Close()
	if rsp.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("the upgrade was refused: %s", rsp.Status)
	}
	return &websocket{conn: conn, reader: reader}, nil
}

// bearer stands before the token in the list of sub-protocols.
const bearer = "authorization.bearer."

func token(remote string) (string, error) {
	host, port, err := net.SplitHostPort(remote)
	if err != nil {
		return "", err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims{
		ID:       hex.EncodeToString(random(16)),
		Protocol: json.RawMessage(`{"Udp":{"timeout":null}}`),
		Host:     host,
		Port:     uint16(number),
	})
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"typ":"JWT","alg":"HS256"}`)) + "." + encode(body)
	mac := hmac.New(sha256.New, random(32))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil)), nil
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // It never fails.
	return b
}
