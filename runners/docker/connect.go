package docker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/fnloop/fnloop/internal/seccomp"
)

// pingTime is how long an engine may take to answer the first question.
const pingTime = 2 * time.Second

// An endpoint is an address of an engine, and what TLS needs there.
type endpoint struct {
	host          string
	ca, cert, key string
	tls           bool // the files may be named by the environment
}

// connect finds the engine and what it can do, and begins to remove what dead
// programs left in it.
func (r *Runner) connect(ctx context.Context) (_ *engine, err error) {
	// To the engine a number below zero is often no limit at all.
	err = r.bounds().Check()
	if err == nil && (r.Warm < 0 || r.Startup < 0 || r.Pull < 0) {
		err = fmt.Errorf("field Warm is %d, Startup %v, Pull %v; none may be negative", r.Warm, r.Startup, r.Pull)
	}
	if err != nil {
		return nil, &Error{Err: fmt.Errorf("%w: %w", ErrLimits, err)}
	}
	bound := cmp.Or(r.Startup, DefaultStartup)
	ctx, cancel := context.WithTimeoutCause(ctx, bound, &Error{Err: fmt.Errorf("%w: the first questions took more than %v", ErrNotAnswering, bound)})
	defer cancel()
	cli, place, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			cli.Close()
		}
	}()
	e := &engine{api: cli, place: place, startup: bound, logger: logger{r.Logger}, debts: debts{wake: make(chan struct{}, 1)}}
	ctx, done := e.attend(ctx)
	defer done()
	info, err := cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, e.classify(ctx, err)
	}
	e.memory, e.version = info.Info.MemTotal, info.Info.CgroupVersion
	if !info.Info.MemoryLimit {
		e.unlimited = append(e.unlimited, "memory", "oom")
	}
	if !info.Info.PidsLimit {
		e.unlimited = append(e.unlimited, "pids")
	}
	if len(e.unlimited) > 0 && !r.AllowUnlimited {
		return nil, &Error{Host: place.host, Err: fmt.Errorf("%w on %s", ErrLimits, strings.Join(e.unlimited, ", ")),
			Advice: "a rootless engine needs cgroup version 2 and delegated controllers; AllowUnlimited accepts it as it is"}
	}
	if e.image, e.path, err = r.findImage(ctx, e); err != nil {
		return nil, err
	}
	if e.podman, err = e.isPodman(ctx); err != nil {
		return nil, err
	}
	if e.lease, err = newLease(); err != nil {
		return nil, &Error{Host: place.host, Err: err}
	}
	if e.seccomp, err = e.policy(); err != nil {
		return nil, errors.Join(err, e.lease.remove(), e.lease.release())
	}
	e.pool = &warm{
		Size:   r.Warm,
		Delay:  refillDelay,
		Make:   func(ctx context.Context, s spec) (*sandbox, error) { return r.start(ctx, e, s) },
		Common: isSilence,
	}
	e.begin(ctx)
	return e, nil
}

func (e *engine) isPodman(ctx context.Context) (bool, error) {
	version, err := e.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return false, e.classify(ctx, err)
	}
	for _, c := range version.Components {
		if strings.Contains(c.Name, "Podman") {
			return true, nil
		}
	}
	return false, nil
}

// policy is our seccomp policy as the engine wants it. Docker takes it as it is;
// Podman takes the name of a file on its own machine.
func (e *engine) policy() (string, error) {
	if !e.podman {
		return seccomp.Profile(), nil
	}
	if !strings.HasPrefix(e.place.host, "unix://") {
		return "", &Error{Host: e.place.host, Err: fmt.Errorf("%w: it takes no seccomp policy from another machine", ErrNotIsolated),
			Advice: "use Podman through its socket, or Docker"}
	}
	file := e.lease.path + ".json"
	if err := os.WriteFile(file, []byte(seccomp.Profile()), 0o600); err != nil {
		return "", &Error{Host: e.place.host, Err: err}
	}
	return file, nil
}

// dial finds an engine that answers. Of several places the first that has an
// engine counts, and where none has, what is wrong with the first that is there.
func (r *Runner) dial(ctx context.Context) (*client.Client, endpoint, error) {
	var none endpoint
	places, err := r.places()
	if err != nil {
		return nil, none, err
	}
	var first error
	for _, place := range places {
		cli, err := place.dial(ctx)
		if err == nil {
			return cli, place, nil
		}
		if ctx.Err() != nil {
			return nil, none, ended(ctx)
		}
		if first == nil || errors.Is(first, ErrNoSocket) && !errors.Is(err, ErrNoSocket) {
			first = err
		}
	}
	return nil, none, first
}

func (p endpoint) dial(ctx context.Context) (*client.Client, error) {
	options := []client.Opt{client.WithHost(p.host)}
	switch {
	case p.ca != "" || p.cert != "":
		options = append(options, client.WithTLSClientConfig(p.ca, p.cert, p.key))
	case p.tls:
		options = append(options, client.WithTLSClientConfigFromEnv())
	}
	// The client says only that it could not connect; the system says why.
	if path, ok := strings.CutPrefix(p.host, "unix://"); ok {
		if err := tryUnix(ctx, path); err != nil {
			return nil, p.refused(err)
		}
	}
	cli, err := client.New(options...)
	if err != nil {
		return nil, &Error{Host: p.host, Err: err}
	}
	ping, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	answer, err := cli.Ping(ping, client.PingOptions{NegotiateAPIVersion: true})
	if err == nil && answer.APIVersion == "" {
		err = errors.New("what answers is not a container engine")
	}
	if err != nil {
		cli.Close()
		return nil, p.refused(err)
	}
	if answer.OSType != "" && answer.OSType != "linux" {
		cli.Close()
		return nil, &Error{Host: p.host, Err: fmt.Errorf("the engine runs %s containers", answer.OSType), Advice: "switch it to Linux containers"}
	}
	return cli, nil
}

func tryUnix(ctx context.Context, path string) error {
	d := net.Dialer{Timeout: pingTime}
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return conn.Close()
}

// refused tells the ways apart in which an engine does not answer.
func (p endpoint) refused(err error) error {
	e := &Error{Host: p.host}
	var what error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		what = ErrNoSocket
		e.Advice = "install and start Docker or Podman, or name its address with DOCKER_HOST"
	case errors.Is(err, fs.ErrPermission):
		what = ErrPermission
		e.Advice = "add the user to the group docker and log in again, or use a rootless engine"
	case strings.Contains(err.Error(), "minimum supported API version"):
		what = ErrOldAPI
		e.Advice = "Docker 19.03 or Podman 3 is the oldest that will do"
	default:
		what = ErrNotAnswering
		e.Advice = "is it running? systemctl status docker, journalctl -u docker"
	}
	e.Err = fmt.Errorf("%w: %w", what, err)
	return e
}

// places are where an engine may be, in the order of preference.
func (r *Runner) places() ([]endpoint, error) {
	if r.Host != "" {
		return []endpoint{{host: r.Host, tls: true}}, nil
	}
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		return []endpoint{{host: host, tls: true}}, nil
	}
	if place, ok, err := currentContext(); ok || err != nil {
		return []endpoint{place}, err
	}
	places := []endpoint{{host: "unix:///var/run/docker.sock"}}
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if runtime == "" {
		runtime = "/run/user/" + strconv.Itoa(os.Getuid())
	}
	places = append(places, endpoint{host: "unix://" + runtime + "/docker.sock"})
	if home, err := os.UserHomeDir(); err == nil {
		places = append(places, endpoint{host: "unix://" + home + "/.docker/run/docker.sock"})
	}
	return append(places,
		endpoint{host: "unix://" + runtime + "/podman/podman.sock"},
		endpoint{host: "unix:///run/podman/podman.sock"}), nil
}

// currentContext is the address that the docker command's current context
// names, if it has one beside the default.
func currentContext() (p endpoint, ok bool, err error) {
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return p, false, nil
		}
		dir = filepath.Join(home, ".docker")
	}
	name := os.Getenv("DOCKER_CONTEXT")
	if name == "" {
		var config struct{ CurrentContext string }
		b, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil || json.Unmarshal(b, &config) != nil {
			return p, false, nil
		}
		name = config.CurrentContext
	}
	if name == "" || name == "default" {
		return p, false, nil
	}
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	b, err := os.ReadFile(filepath.Join(dir, "contexts", "meta", id, "meta.json"))
	if err == nil {
		err = json.Unmarshal(b, &meta)
	}
	if err != nil {
		return p, false, &Error{Err: fmt.Errorf("the context %q of the docker command: %w", name, err), Advice: "docker context ls shows those there are"}
	}
	p.host = meta.Endpoints["docker"].Host
	if strings.HasPrefix(p.host, "ssh://") {
		return p, false, &Error{Host: p.host, Err: fmt.Errorf("the context %q goes through ssh", name), Advice: "forward the engine's socket with ssh -L and name it with DOCKER_HOST"}
	}
	tls := filepath.Join(dir, "contexts", "tls", id, "docker")
	if _, err := os.Stat(filepath.Join(tls, "ca.pem")); err == nil {
		p.ca = filepath.Join(tls, "ca.pem")
	}
	if _, err := os.Stat(filepath.Join(tls, "cert.pem")); err == nil {
		p.cert, p.key = filepath.Join(tls, "cert.pem"), filepath.Join(tls, "key.pem")
	}
	return p, p.host != "", nil
}
