package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Opcodes of frames (RFC 6455, section 5.2).
const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10
)

// maxUnanswered is how many pings may be unanswered before a connection counts
// as dead.
const maxUnanswered = 3

// websocket carries one datagram in each binary frame. Frames are not masked,
// in neither direction: wstunnel leaves that out unless it is told to.
type websocket struct {
	conn   net.Conn
	reader *bufio.Reader

	write      sync.Mutex
	unanswered atomic.Int32
}

func (w *websocket) send(opcode byte, payload []byte) error {
	frame := []byte{0x80 | opcode}
	switch {
	case len(payload) < 126:
		frame = append(frame, byte(len(payload)))
	case len(payload) < 1<<16:
		frame = append(frame, 126)
		frame = binary.BigEndian.AppendUint16(frame, uint16(len(payload)))
	default:
		return io.ErrShortBuffer
	}
	w.write.Lock()
	defer w.write.Unlock()
	_, err := w.conn.Write(append(frame, payload...))
	return err
}

func (w *websocket) receive() (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(w.reader, head[:]); err != nil {
		return 0, nil, err
	}
	size := int(head[1] & 0x7f)
	switch size {
	case 126:
		var long [2]byte
		if _, err := io.ReadFull(w.reader, long[:]); err != nil {
			return 0, nil, err
		}
		size = int(binary.BigEndian.Uint16(long[:]))
	case 127:
		return 0, nil, errors.New("a frame is longer than any datagram")
	}
	var key [4]byte
	masked := head[1]&0x80 != 0
	if masked {
		if _, err := io.ReadFull(w.reader, key[:]); err != nil {
			return 0, nil, err
		}
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(w.reader, payload); err != nil {
		return 0, nil, err
	}
	if masked {
		for i := range payload {
			payload[i] ^= key[i%4]
		}
	}
	return head[0] & 0xf, payload, nil
}

// run hands every datagram to deliver, until the connection ends.
func (w *websocket) run(ping time.Duration, deliver func([]byte)) error {
	defer func() { _ = w.conn.Close() }()
	done := make(chan struct{})
	defer close(done)
	if ping > 0 {
		go w.keepAlive(ping, done)
	}
	for {
		opcode, payload, err := w.receive()
		if err != nil {
			return err
		}
		switch opcode {
		case opText, opBinary:
			deliver(payload)
		case opPing:
			if err := w.send(opPong, payload); err != nil {
				return err
			}
		case opPong:
			w.unanswered.Store(0)
		case opClose:
			return io.EOF
		}
	}
}

func (w *websocket) keepAlive(every time.Duration, done <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if w.unanswered.Add(1) > maxUnanswered || w.send(opPing, nil) != nil {
			_ = w.conn.Close()
			return
		}
	}
}
