// A bulk sender and its receiver on quic-go: `send ADDRESS PORT SECONDS CONTROL GSO [qlog]` and `receive PORT`.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"
)

// More than the largest path holds, so that no flow-control window bounds what congestion control allows.
const windowBytes = 64 << 20

// A run fails if a program prints more than 16 MiB.
const mostQlogBytes = 15 << 20

var protocols = []string{"bulk"}

func main() {
	words := os.Args[1:]
	var err error
	switch {
	case len(words) >= 6 && words[0] == "send":
		err = send(net.JoinHostPort(words[1], words[2]), words[3], words[4], words[5] == "on", len(words) == 7)
	case len(words) == 2 && words[0] == "receive":
		err = receive(":" + words[1])
	default:
		err = fmt.Errorf("give: send ADDRESS PORT SECONDS CONTROL on|off [qlog], or: receive PORT")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func send(to, seconds, control string, gso, qlog bool) error {
	length, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return err
	}
	if control != "reno" {
		return fmt.Errorf("quic-go has no %s; it has reno", control)
	}
	if !gso {
		os.Setenv("QUIC_GO_DISABLE_GSO", "true") // its only switch
	}
	end := time.Now().Add(time.Duration(length * float64(time.Second)))
	trust := &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}
	settings, log := &quic.Config{}, &kept{}
	if qlog {
		settings.Tracer = func(_ context.Context, _ bool, id quic.ConnectionID) qlogwriter.Trace {
			trace := qlogwriter.NewConnectionFileSeq(log, true, id)
			go trace.Run()
			return trace
		}
	}
	connection, err := quic.DialAddr(context.Background(), to, trust, settings)
	if err != nil {
		return err
	}
	stream, err := connection.OpenUniStream()
	if err != nil {
		return err
	}
	stream.SetWriteDeadline(end)
	written, block := 0, make([]byte, 65536)
	for time.Now().Before(end) {
		bytes, err := stream.Write(block)
		written += bytes
		if err != nil {
			break // the deadline
		}
	}
	about := connection.ConnectionStats()
	fmt.Printf("written %d bytes, sent %d packets, lost %d, rtt %d us\n", written, about.PacketsSent,
		about.PacketsLost, about.SmoothedRTT.Microseconds())
	log.print()
	return connection.CloseWithError(0, "done")
}

// qlog, kept until the end: a write during the run would cost CPU time.
type kept struct {
	lock sync.Mutex
	all  bytes.Buffer
}

func (k *kept) Write(part []byte) (int, error) {
	k.lock.Lock()
	defer k.lock.Unlock()
	return k.all.Write(part)
}

func (k *kept) Close() error { return nil }

// Prints its head, the first event and all metrics, as far as mostQlogBytes hold them.
func (k *kept) print() {
	k.lock.Lock()
	defer k.lock.Unlock()
	printed := 0
	for number, record := range bytes.SplitAfter(k.all.Bytes(), []byte{'\n'}) {
		if number < 2 || bytes.Contains(record, []byte("metrics_updated")) {
			if printed += len(record); printed > mostQlogBytes {
				return
			}
			os.Stdout.Write(record)
		}
	}
}

func receive(on string) error {
	certificate, err := certificate()
	if err != nil {
		return err
	}
	offer := &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: protocols}
	windows := &quic.Config{
		InitialStreamReceiveWindow:     windowBytes,
		MaxStreamReceiveWindow:         windowBytes,
		InitialConnectionReceiveWindow: windowBytes,
		MaxConnectionReceiveWindow:     windowBytes,
	}
	listener, err := quic.ListenAddr(on, offer, windows)
	if err != nil {
		return err
	}
	connection, err := listener.Accept(context.Background())
	if err != nil {
		return err
	}
	stream, err := connection.AcceptUniStream(context.Background())
	if err != nil {
		return err
	}
	received, _ := io.Copy(io.Discard, stream) // ends when the sender closes the connection
	fmt.Printf("received %d bytes\n", received)
	return nil
}

// Who the receiver is does not matter here: it signs for itself.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}, err
}
