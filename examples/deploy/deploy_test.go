// Package deploy_test checks the files beside it: against the schemas of what they
// are for, and the Dockerfile with the options of compose.yaml in a container.
package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	node "k8s.io/api/node/v1"
	"sigs.k8s.io/yaml"
)

// TestKubernetes decodes the manifests into the types of the API: a field that is
// misspelt, misplaced or of another kind is an error.
func TestKubernetes(t *testing.T) {
	kinds := map[string]func() any{
		"apps/v1 Deployment":                 func() any { return new(apps.Deployment) },
		"v1 PersistentVolumeClaim":           func() any { return new(core.PersistentVolumeClaim) },
		"v1 Service":                         func() any { return new(core.Service) },
		"networking.k8s.io/v1 NetworkPolicy": func() any { return new(networking.NetworkPolicy) },
		"node.k8s.io/v1 RuntimeClass":        func() any { return new(node.RuntimeClass) },
	}
	found := make(map[string]any)
	for _, file := range []string{"kubernetes.yaml", "gvisor.yaml"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var head struct{ APIVersion, Kind string }
			require.NoError(t, yaml.Unmarshal([]byte(document), &head))
			kind := head.APIVersion + " " + head.Kind
			require.Contains(t, kinds, kind, file)
			found[kind] = kinds[kind]()
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), found[kind]), "%s: %s", file, kind)
		}
	}
	require.Len(t, found, len(kinds), "a kind is missing")

	pod := found["apps/v1 Deployment"].(*apps.Deployment).Spec.Template
	c := pod.Spec.Containers[0]
	assert.Equal(t, found["apps/v1 Deployment"].(*apps.Deployment).Spec.Selector.MatchLabels, pod.Labels)
	assert.Equal(t, pod.Labels, found["v1 Service"].(*core.Service).Spec.Selector)
	assert.Equal(t, pod.Labels, found["networking.k8s.io/v1 NetworkPolicy"].(*networking.NetworkPolicy).Spec.PodSelector.MatchLabels)
	assert.Equal(t, found["v1 PersistentVolumeClaim"].(*core.PersistentVolumeClaim).Name, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
	assert.False(t, *pod.Spec.HostUsers, "an unmasked /proc is refused without")
	assert.Equal(t, core.UnmaskedProcMount, *c.SecurityContext.ProcMount)
	assert.Equal(t, core.SeccompProfileTypeLocalhost, pod.Spec.SecurityContext.SeccompProfile.Type)
	assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	mounts := make(map[string]bool)
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = true
	}
	for _, v := range pod.Spec.Volumes {
		assert.True(t, mounts[v.Name], v.Name)
	}
}

// compose loads compose.yaml, which is checked against the schema on the way.
func compose(t *testing.T) types.ServiceConfig {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"compose.yaml"}, cli.WithResolvedPaths(true))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	service, err := project.GetService("chat")
	require.NoError(t, err)
	return service
}

func TestCompose(t *testing.T) {
	s := compose(t)
	assert.Contains(t, s.SecurityOpt, "systempaths=unconfined")
	assert.Equal(t, []string{"ALL"}, s.CapDrop)
	assert.True(t, s.ReadOnly)
	assert.False(t, s.Privileged)
	for _, port := range s.Ports {
		assert.Equal(t, "127.0.0.1", port.HostIP, "who opens it to others puts a proxy before it")
	}
}

// docker runs a command of Docker's.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	require.NoError(t, err, "docker %s\n%s", strings.Join(args, " "), out)
	return strings.TrimSpace(string(out))
}

// base is the image that the test builds on, for want of a registry: that of the
// other tests, which has Python.
func base(t *testing.T) string {
	t.Helper()
	name := "fnloop-test:latest"
	if own := os.Getenv("FNLOOP_TEST_IMAGE"); own != "" {
		name = own
	}
	if err := exec.CommandContext(t.Context(), "docker", "image", "inspect", name).Run(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("Docker with the image %s is needed on CI: %v", name, err)
		}
		t.Skipf("Docker with the image %s is not here: %v", name, err)
	}
	return name
}

// TestContainer builds the Dockerfile, starts it as compose.yaml says, and has the
// back end run a program.
func TestContainer(t *testing.T) {
	from := base(t)
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "server"), ".")
	build.Dir = "../chat"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	text, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Dockerfile"), text, 0o644))
	name := fmt.Sprintf("fnloop-deploy:%d", os.Getpid())
	docker(t, "build", "--network", "host", "--build-arg", "BASE="+from, "-t", name, dir)
	t.Cleanup(func() { docker(t, "rmi", "--force", name) })

	s := compose(t)
	options := []string{"--cap-drop", strings.Join(s.CapDrop, ","), fmt.Sprintf("--read-only=%t", s.ReadOnly)}
	for _, option := range s.SecurityOpt {
		if strings.HasPrefix(option, "apparmor=") && !hasAppArmor() {
			continue // an engine without it refuses the option
		}
		options = append(options, "--security-opt", option)
	}
	for _, path := range s.Tmpfs {
		options = append(options, "--tmpfs", path)
	}
	options = append(options, "--memory", fmt.Sprint(int64(s.MemLimit)), "--memory-swap", fmt.Sprint(int64(s.MemSwapLimit)), "--pids-limit", fmt.Sprint(s.PidsLimit))

	t.Run("plain", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "docker", "run", "--rm", "--network", "none", name).CombinedOutput()
		require.Error(t, err, "without the options it does not start")
		assert.Contains(t, string(out), "cannot isolate programs here")
		assert.Contains(t, string(out), "its seccomp profile must allow unshare and clone", "it says what to do")
	})
	t.Run("compose", func(t *testing.T) {
		assert.Contains(t, ask(t, start(t, name, options...), "which primes are there?"), "2 3 5 7 11 13")
	})
}

func hasAppArmor() bool {
	b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(b), "Y")
}

// start starts a container with the network of this machine, as there may be no
// other, and returns the address of its back end.
func start(t *testing.T, image string, options ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	args := append([]string{"run", "--detach", "--network", "host"}, options...)
	id := docker(t, append(args, image, "-addr", addr, "-db", "/data/chat.db")...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(docker(t, "logs", id))
		}
		docker(t, "rm", "--force", "--volumes", id)
	})
	url := "http://" + addr
	require.Eventually(t, func() bool {
		res, err := http.Get(url)
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	}, time.Minute, 200*time.Millisecond, "the back end is not there")
	return url
}

// ask has the back end answer a message in a new chat, and gives all that it then
// shows of it.
func ask(t *testing.T, url, message string) string {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	send := func(method, path, kind string, body io.Reader) []byte {
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, body)
		require.NoError(t, err)
		req.Header.Set("Content-Type", kind)
		res, err := client.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Less(t, res.StatusCode, 300, "%s %s: %s", method, path, text)
		return text
	}
	var chat struct {
		ID      string `json:"id"`
		Head    string `json:"head"`
		Version int64  `json:"version"`
	}
	require.NoError(t, json.Unmarshal(send("POST", "/chats", "", nil), &chat))
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for field, value := range map[string]string{"text": message, "parent": chat.Head, "version": fmt.Sprint(chat.Version)} {
		require.NoError(t, w.WriteField(field, value))
	}
	require.NoError(t, w.Close())
	send("POST", "/chats/"+chat.ID+"/runs", w.FormDataContentType(), &form)
	for {
		shown := send("GET", "/chats/"+chat.ID, "", nil)
		var state struct{ Running bool }
		require.NoError(t, json.Unmarshal(shown, &state))
		if !state.Running {
			return string(shown)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
