// Package version has the version of fnloop.
package version

// Version is the version that the next tag gets, or the last one got, without
// its v. The tests compare it with CHANGELOG.md and docs/versions.md, and the
// release with its tag.
const Version = "0.1.0"
