// A bulk sender and its receiver on golang.org/x/net/quic: `send ADDRESS PORT SECONDS CONTROL GSO` and `receive PORT`.
package main

import (
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
	"time"

	"golang.org/x/net/quic"
)

// More than the largest path holds, so that no flow-control window bounds what congestion control allows.
const windowBytes = 64 << 20

func main() {
	words := os.Args[1:]
	var err error
	switch {
	case len(words) == 6 && words[0] == "send":
		err = send(net.JoinHostPort(words[1], words[2]), words[3], words[4])
	case len(words) == 2 && words[0] == "receive":
		err = receive(":" + words[1])
	default:
		err = fmt.Errorf("give: send ADDRESS PORT SECONDS CONTROL on|off, or: receive PORT")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func config(both *tls.Config) *quic.Config {
	both.MinVersion, both.NextProtos = tls.VersionTLS13, []string{"bulk"}
	return &quic.Config{
		TLSConfig:                both,
		MaxStreamReadBufferSize:  windowBytes,
		MaxStreamWriteBufferSize: windowBytes,
		MaxConnReadBufferSize:    windowBytes,
	}
}

func send(to, seconds, control string) error {
	length, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return err
	}
	if control != "reno" {
		return fmt.Errorf("x-net has no %s; it has reno", control)
	}
	until, done := context.WithTimeout(context.Background(), time.Duration(length*float64(time.Second)))
	defer done()
	endpoint, err := quic.Listen("udp4", ":0", nil)
	if err != nil {
		return err
	}
	connection, err := endpoint.Dial(until, "udp4", to, config(&tls.Config{InsecureSkipVerify: true}))
	if err != nil {
		return err
	}
	stream, err := connection.NewSendOnlyStream(until)
	if err != nil {
		return err
	}
	stream.SetWriteContext(until)
	written, block := 0, make([]byte, 65536)
	for until.Err() == nil {
		bytes, err := stream.Write(block)
		written += bytes
		if err != nil {
			break // the time is over
		}
	}
	fmt.Printf("written %d bytes\n", written)
	connection.Abort(nil)
	return nil
}

func receive(on string) error {
	certificate, err := certificate()
	if err != nil {
		return err
	}
	endpoint, err := quic.Listen("udp4", on, config(&tls.Config{Certificates: []tls.Certificate{certificate}}))
	if err != nil {
		return err
	}
	connection, err := endpoint.Accept(context.Background())
	if err != nil {
		return err
	}
	stream, err := connection.AcceptStream(context.Background())
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
