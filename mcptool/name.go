package mcptool

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	maxServerName = 32
	maxToolName   = 64 // what a Loop and all deployments of the API take
	separator     = "__"
)

// ToolName is the name under which the model knows a tool: that of the server, two
// underscores, and the tool's own. Characters that the API does not take become
// underscores. A name that was changed so, or is longer than 64 characters, ends
// in eight digits of a hash of the pair. It depends on nothing but the pair, and
// two pairs have two names.
func ToolName(server, tool string) string {
	legal := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, tool)
	name := server + separator + legal
	if legal == tool && len(name) <= maxToolName {
		return name
	}
	sum := sha256.Sum256([]byte(server + "\x00" + tool))
	suffix := "_" + hex.EncodeToString(sum[:4])
	return name[:min(len(name), maxToolName-len(suffix))] + suffix
}

// checkServerName reports what is wrong with the name of a server. The first two
// underscores of a tool's name must end it.
func checkServerName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty; the names of the server's tools begin with it")
	case len(name) > maxServerName:
		return fmt.Errorf("%.80q is longer than %d characters", name, maxServerName)
	case strings.Contains(name, separator) || strings.HasSuffix(name, "_"):
		return fmt.Errorf("%q has two underscores in a row, or one at its end; they divide it from the tool's name", name)
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return fmt.Errorf("%q has a %q; letters, digits, '_' and '-' are allowed", name, c)
		}
	}
	return nil
}
