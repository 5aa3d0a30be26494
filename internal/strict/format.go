package strict

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A format is one of the string formats that strict mode supports.
type format struct {
	name    string
	example string
	valid   func(string) bool
}

// formats are all the formats of strict mode.
var formats = map[string]*format{
	"date-time": {"date-time", "2006-01-02T15:04:05Z", isDateTime},
	"time":      {"time", "15:04:05Z", isTime},
	"date":      {"date", "2006-01-02", isDate},
	"duration":  {"duration", "P1DT12H", isDuration},
	"email":     {"email", "someone@example.com", isEmail},
	"hostname":  {"hostname", "example.com", isHostname},
	"ipv4":      {"ipv4", "192.0.2.1", isIPv4},
	"ipv6":      {"ipv6", "2001:db8::1", isIPv6},
	"uuid":      {"uuid", "123e4567-e89b-12d3-a456-426614174000", isUUID},
}

// formatNames lists the names of formats for messages.
var formatNames = strings.Join(slices.Sorted(maps.Keys(formats)), ", ")

// fits reports whether s has the shape of layout, in which every 0 stands for
// a digit and every other byte for itself.
func fits(s, layout string) bool {
	if len(s) != len(layout) {
		return false
	}
	for i := range len(s) {
		if layout[i] == '0' && (s[i] < '0' || s[i] > '9') || layout[i] != '0' && s[i] != layout[i] {
			return false
		}
	}
	return true
}

// number2 reads two digits.
func number2(s string) int { return int(s[0]-'0')*10 + int(s[1]-'0') }

// isDateTime accepts what time.Time decodes: RFC 3339 with a capital T and Z
// and without leap seconds.
func isDateTime(s string) bool {
	return len(s) > 11 && s[10] == 'T' && isDate(s[:10]) && isTime(s[11:])
}

func isDate(s string) bool {
	if !fits(s, "0000-00-00") {
		return false
	}
	_, err := time.Parse(time.DateOnly, s)
	return err == nil
}

func isTime(s string) bool {
	if len(s) < 9 || !fits(s[:8], "00:00:00") || number2(s) > 23 || number2(s[3:]) > 59 || number2(s[6:]) > 59 {
		return false
	}
	zone := s[8:]
	if zone[0] == '.' {
		zone = strings.TrimLeft(zone[1:], "0123456789")
		if len(zone) == len(s)-9 {
			return false // no digit after the point
		}
	}
	if zone == "Z" {
		return true
	}
	return (fits(zone, "+00:00") || fits(zone, "-00:00")) && number2(zone[1:]) <= 23 && number2(zone[4:]) <= 59
}

// isDuration accepts the ISO 8601 durations of RFC 3339, appendix A, in which
// a unit may be left out only before the first and after the last.
func isDuration(s string) bool {
	s, ok := strings.CutPrefix(s, "P")
	if !ok {
		return false
	}
	if weeks, ok := strings.CutSuffix(s, "W"); ok {
		return weeks != "" && strings.Trim(weeks, "0123456789") == ""
	}
	date, clock, hasClock := strings.Cut(s, "T")
	if hasClock && clock == "" || s == "" {
		return false
	}
	return inUnits(date, "YMD") && inUnits(clock, "HMS")
}

// inUnits reports whether s is a run of numbers, each followed by the next of
// units.
func inUnits(s, units string) bool {
	for first := true; s != ""; first = false {
		rest := strings.TrimLeft(s, "0123456789")
		if rest == "" || len(rest) == len(s) {
			return false
		}
		i := strings.IndexByte(units, rest[0])
		if i < 0 || i > 0 && !first {
			return false
		}
		s, units = rest[1:], units[i+1:]
	}
	return true
}

func isHostname(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isAlnum(c) && c != '-' {
				return false
			}
		}
	}
	return true
}

func isEmail(s string) bool {
	local, domain, ok := strings.Cut(s, "@")
	if !ok || local == "" || len(local) > 64 || len(s) > 254 || !isHostname(domain) {
		return false
	}
	if local[0] == '.' || local[len(local)-1] == '.' || strings.Contains(local, "..") {
		return false
	}
	for i := range len(local) {
		if c := local[i]; !isAlnum(c) && strings.IndexByte(".!#$%&'*+-/=?^_`{|}~", c) < 0 {
			return false
		}
	}
	return true
}

func isIPv4(s string) bool {
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Is4()
}

func isIPv6(s string) bool {
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Is6() && addr.Zone() == ""
}

func isUUID(s string) bool {
	return len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' &&
		hexPrefix([]byte(s[:8])) && hexPrefix([]byte(s[9:13])) && hexPrefix([]byte(s[14:18])) &&
		hexPrefix([]byte(s[19:23])) && hexPrefix([]byte(s[24:]))
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
