// Command container is what runs in pods that are not the tests' subject:
//
//	container                 the first process of a pod and of a node: it waits, and takes leave of
//	                          those that lost their parents
//	container call ADDRESS    calls over TCP until the end, and says when answers begin and stop
//	container once ADDRESS    calls over TCP until there was one answer
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 3 {
		go call(os.Args[2], os.Args[1] == "once")
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			var status syscall.WaitStatus
			if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

// call makes a new connection each time.
func call(address string, once bool) {
	last := "nothing"
	for {
		result := "ok"
		if err := exchange(address); err != nil {
			result = err.Error()
		}
		if result != last {
			fmt.Println(time.Now().Format(time.StampMilli), result)
			last = result
		}
		if once && result == "ok" {
			os.Exit(0)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func exchange(address string) error {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	b := []byte("hello")
	if _, err := c.Write(b); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err = io.ReadFull(c, b)
	return err
}
