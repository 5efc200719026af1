// Visitors of a web page, in an open loop: `pages [-protocol 1|2|3] [-rate PAGES] ... https://ADDRESS:PORT/PATH`.
//
// Each visitor is new: it makes its own connections, asks for all objects of the page at once, and leaves. It prints a
// line of JSON for each object, which becomes a row of the dataset's table `requests`; those of a page are due at the
// same time.
package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math"
	random "math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go/http3"
)

// As browsers do for each host with HTTP/1.1.
const connectionsOfHTTP1 = 6

func main() {
	protocol := flag.Int("protocol", 1, "version of HTTP: 1 (1.1, six connections), 2 or 3 (one); all over TLS 1.3")
	rate := flag.Float64("rate", 7, "pages a second, in the mean; the times between them are exponential")
	lasts := flag.Float64("for", 4, "seconds for which pages are due")
	patience := flag.Float64("patience", 2.9, "seconds after that until objects that have not come are given up")
	objects := flag.Int("objects", 30, "objects of a page")
	flag.Parse()
	if err := run(*protocol, *rate, *lasts, *patience, *objects, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func run(protocol int, rate, lasts, patience float64, objects int, urls []string) error {
	switch {
	case len(urls) != 1:
		return fmt.Errorf("give one URL; there are %d", len(urls))
	case protocol < 1 || protocol > 3:
		return fmt.Errorf("-protocol: %d is not 1, 2 or 3", protocol)
	case !(rate > 0 && rate <= 1e4 && lasts > 0 && lasts <= 3600 && patience >= 0 && patience <= 3600):
		return fmt.Errorf("-rate is above 0 and at most 10000, -for and -patience are seconds of at most 3600")
	case objects < 1 || objects > 1000:
		return fmt.Errorf("-objects: %d is not 1 to 1000", objects)
	}
	var seed [8]byte
	rand.Read(seed[:])
	draws := random.New(random.NewPCG(binary.NativeEndian.Uint64(seed[:]), 0))
	begun := time.Now()
	until, cancel := context.WithDeadline(context.Background(), begun.Add(seconds(lasts+patience)))
	defer cancel()
	var pages sync.WaitGroup
	var told outcome
	// Whole microseconds: the last digit of a logarithm changes no packet.
	for at := -math.Log1p(-draws.Float64()) / rate; at < lasts; at -= math.Log1p(-draws.Float64()) / rate {
		due := begun.Add(time.Duration(at*1e6) * time.Microsecond)
		time.Sleep(time.Until(due))
		pages.Go(func() { visit(until, protocol, objects, urls[0], begun, due, &told) })
	}
	pages.Wait()
	if told.asked > 0 && told.answered == 0 {
		return fmt.Errorf("none of %d objects came; the first: %s", told.asked, told.failure)
	}
	return nil
}

func seconds(number float64) time.Duration { return time.Duration(number * float64(time.Second)) }

// What became of all objects.
type outcome struct {
	lock            sync.Mutex
	asked, answered int
	failure         string
}

// Who the server is does not matter here.
func trust() *tls.Config { return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} }

// Returns what asks, and what closes its connections.
func transport(protocol int) (http.RoundTripper, func()) {
	if protocol == 3 {
		three := &http3.Transport{TLSClientConfig: trust()}
		return three, func() { three.Close() }
	}
	versions := new(http.Protocols)
	versions.SetHTTP1(protocol == 1)
	versions.SetHTTP2(protocol == 2)
	most := map[int]int{1: connectionsOfHTTP1, 2: 1}[protocol]
	tcp := &http.Transport{
		TLSClientConfig: trust(), Protocols: versions, MaxConnsPerHost: most, MaxIdleConnsPerHost: most,
		DisableCompression: true,
	}
	return tcp, tcp.CloseIdleConnections
}

func visit(until context.Context, protocol, objects int, url string, begun, due time.Time, told *outcome) {
	asks, leave := transport(protocol)
	defer leave()
	var all sync.WaitGroup
	for range objects {
		all.Go(func() {
			status, bytes, first, failure := get(until, asks, url)
			whole := sinceMs(due, time.Now())
			if failure != nil {
				whole = "null"
			} else if status < 200 || status > 299 {
				failure = fmt.Errorf("status %d", status)
			}
			firstByte := "null"
			if !first.IsZero() {
				firstByte = sinceMs(due, first)
			}
			told.lock.Lock()
			defer told.lock.Unlock()
			if told.asked++; failure == nil {
				told.answered++
			} else if told.failure == "" {
				told.failure = failure.Error()
			}
			// One write, which is one line where other programs print, too.
			fmt.Printf("{\"request\": {\"due_s\": %.9f, \"first_byte_ms\": %s, \"completion_ms\": %s, \"bytes\": %d, "+
				"\"status\": %s}}\n", due.Sub(begun).Seconds(), firstByte, whole, bytes, number(status))
		})
	}
	all.Wait()
}

// Asks for an object, and returns its status (0: there was none), its bytes, and when its first byte came.
func get(until context.Context, asks http.RoundTripper, url string) (int, int64, time.Time, error) {
	request, err := http.NewRequestWithContext(until, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, time.Time{}, err
	}
	answer, err := asks.RoundTrip(request)
	if err != nil {
		return 0, 0, time.Time{}, err
	}
	defer answer.Body.Close()
	first := time.Now()
	bytes, err := io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, bytes, first, err
}

func sinceMs(due, at time.Time) string { return fmt.Sprintf("%.6f", float64(at.Sub(due))/1e6) }

func number(status int) string {
	if status == 0 {
		return "null"
	}
	return fmt.Sprint(status)
}
