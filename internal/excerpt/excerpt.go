// Package excerpt has what is needed where bytes are left out of UTF-8 text: no rune
// may stay in part, and a marker says how much is missing.
package excerpt

import "unicode/utf8"

// Marker stands for what is left out. It takes the number of bytes.
const Marker = "\n[... %d bytes left out ...]\n"

// TrimEnd drops the beginning of a rune from the end of b, where its rest is
// missing.
func TrimEnd(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// TrimStart drops the end of a rune from the start of b, where its beginning is
// missing.
func TrimStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
		b = b[1:]
	}
	return b
}

// InvalidUTF8 is the offset of the first byte of s that is not part of a rune, or
// -1 if there is none.
func InvalidUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return i
			}
		}
	}
	return -1
}
