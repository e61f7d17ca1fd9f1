package main

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// serve takes tunnels to the destinations that it is restricted to. Everything
// else gets the same answer, whatever is wrong with it.
func serve(o *options) error {
	s := &http.Server{Addr: o.address.Host, ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		destination, err := o.destination(r)
		if err == nil {
			err = relay(o, w, r, destination)
		}
		if err != nil {
			log.Printf("rejecting %s: %v", r.URL.Path, err)
			http.Error(w, "Invalid request", http.StatusBadRequest)
		}
	})}
	return s.ListenAndServe()
}

// destination tells where a request wants to go, if it may.
func (o *options) destination(r *http.Request) (string, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Header.Get("Sec-WebSocket-Key") == "" {
		return "", errors.New("it is no upgrade")
	}
	prefix, rest, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if !ok || !strings.HasSuffix(rest, "events") {
		return "", errors.New("it is no path of ours")
	}
	if len(o.restrictPrefix) > 0 && !slices.Contains(o.restrictPrefix, prefix) {
		return "", errors.New("the prefix is not allowed")
	}
	_, token, _ := strings.Cut(r.Header.Get("Sec-WebSocket-Protocol"), bearer)
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("there is no token")
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	var c claims
	if err := json.Unmarshal(body, &c); err != nil {
		return "", err
	}
	if !strings.HasPrefix(string(c.Protocol), `{"Udp":`) {
		return "", errors.New("the stand-in does UDP only")
	}
	destination := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	if len(o.restrictTo) > 0 && !slices.Contains(o.restrictTo, destination) {
		return "", fmt.Errorf("the destination %s is not allowed", destination)
	}
	return destination, nil
}

func relay(o *options, rw http.ResponseWriter, r *http.Request, destination string) error {
	udp, err := (&net.Dialer{}).DialContext(r.Context(), "udp", destination)
	if err != nil {
		return err
	}
	defer func() { _ = udp.Close() }()
	hijacker, ok := rw.(http.Hijacker)
	if !ok {
		return errors.New("the connection cannot be taken over")
	}
	conn, buffered, err := hijacker.Hijack()
	if err != nil {
		return err
	}
	accept := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	w := &websocket{conn: conn, reader: buffered.Reader}
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: v1\r\n\r\n", base64.StdEncoding.EncodeToString(accept[:])); err != nil {
		log.Print("cannot answer: ", err)
		return nil
	}
	log.Print("tunnel to ", destination)
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, err := udp.Read(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Nobody may listen there yet.
			if err == nil && w.send(opBinary, b[:n]) != nil {
				return
			}
		}
	}()
	log.Print("the tunnel ended: ", w.run(o.ping, func(b []byte) { _, _ = udp.Write(b) }))
	return nil
}
