// Command balancer passes requests on to the hosts of a chat back end, all of one
// conversation to the same host, where its run and its interpreter are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "balancer:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("balancer", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:8000", "where to listen")
	list := flags.String("hosts", "", "the hosts by name, such as a=http://10.0.0.1:8080,b=http://10.0.0.2:8080")
	if err := flags.Parse(args); err != nil {
		return err
	}
	hosts, err := parseHosts(*list)
	if err != nil {
		return err
	}
	web := &http.Server{Addr: *addr, Handler: newBalancer(hosts), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- web.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return web.Close() // browsers come again, and go on where they were
	}
}

// parseHosts reads a list like a=http://10.0.0.1:8080,b=http://10.0.0.2:8080.
func parseHosts(list string) (map[string]*url.URL, error) {
	hosts := make(map[string]*url.URL)
	for entry := range strings.SplitSeq(list, ",") {
		name, address, ok := strings.Cut(strings.TrimSpace(entry), "=")
		u, err := url.Parse(address)
		if !ok || name == "" || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("-hosts has %q, which is not like a=http://10.0.0.1:8080", entry)
		}
		if hosts[name] != nil {
			return nil, fmt.Errorf("-hosts has two hosts that are named %q", name)
		}
		hosts[name] = u
	}
	return hosts, nil
}
