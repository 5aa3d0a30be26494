package runtimecloud

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// An ImageRecipe is what [Runner.BuildImage] builds: a disk with packages on it,
// so that they need not be installed into every sandbox. What the service has
// beyond that, images of a Dockerfile, public and private ones, is made with its
// own tools and named in [Runner.Image], as it is not documented what to send.
type ImageRecipe struct {
	// Name is what Runner.Image names it by. Required.
	Name string `json:"-"`
	// Base is the image to begin with. Empty means the service's own.
	Base string `json:"base,omitempty"`
	// Apt, Pip and NPM are packages of each, Commands run after they are there.
	Apt      []string `json:"apt,omitempty"`
	Pip      []string `json:"pip,omitempty"`
	NPM      []string `json:"npm,omitempty"`
	Commands []string `json:"commands,omitempty"`
	// Env are variables of the environment. They are stored with the image.
	Env map[string]string `json:"env,omitempty"`
	// Workdir is the current folder of commands. Empty means the service's own.
	Workdir string `json:"workdir,omitempty"`
}

// BuildImage has the service build an image, waits for it, and gives its ID for
// [Runner.Image]. It is built once and kept, and billed as storage, until it is
// deleted on the service's website. A build that failed is an [*Error] with the
// code "build_failed" and the last lines of its log. When ctx ends the build goes
// on, and the same recipe is not looked for again.
func (r *Runner) BuildImage(ctx context.Context, recipe ImageRecipe) (id string, err error) {
	if recipe.Name == "" {
		return "", &ConfigError{Field: "ImageRecipe.Name", Reason: "is empty"}
	}
	c, err := r.start()
	if err != nil {
		return "", err
	}
	var image struct{ ID, State string }
	if err := c.do(ctx, &request{
		op: "build", method: http.MethodPost, path: "/v1/images", key: newKey(),
		body: encode(map[string]any{"name": recipe.Name, "recipe": recipe}),
	}, &image); err != nil {
		return "", err
	}
	if image.ID == "" {
		return "", &Error{Op: "build", Code: codeRequest, Status: http.StatusOK, Message: "the answer names no image"}
	}
	path := "/v1/images/" + url.PathEscape(image.ID)
	for wait := time.Second; ; wait = min(2*wait, 10*time.Second) {
		switch image.State {
		case "ready":
			return image.ID, nil
		case "failed":
			log, _ := c.download(ctx, &request{op: "build", method: http.MethodGet, path: path + "/logs", accept: "*/*", budget: controlTime}, 1<<20)
			return "", &Error{Op: "build", Code: "build_failed", Message: fmt.Sprintf("image %s: %s", image.ID, lastLines(string(log), 10)), retryAfter: -1}
		}
		if !sleep(ctx, nil, wait) {
			return "", c.describe(ctx, &request{op: "build"}, nil)
		}
		if err := c.do(ctx, &request{op: "build", method: http.MethodGet, path: path, answer: 30 * time.Second}, &image); err != nil {
			return "", err
		}
	}
}
