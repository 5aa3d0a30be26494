package responsestest

import "time"

// CheckShape judges a body as far as that can be done without state, its calls and outputs included if it
// continues nothing. It returns the error reply, or nil.
func CheckShape(body []byte) []byte {
	req, bad := new(Server).parseRequest(body)
	if bad == nil && req.previous == "" && req.conversation == "" {
		bad = checkPairing(nil, req.input)
	}
	if bad == nil {
		return nil
	}
	return bad.json()
}

// SetCloseWait changes how long Close waits for functions of the script, until restore is called.
func SetCloseWait(d time.Duration) (restore func()) {
	before := closeWait
	closeWait = d
	return func() { closeWait = before }
}
