package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var screenshots = flag.String("screenshots", "", "a folder for pictures of the page")

// A tab is one of a browser.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// browse starts a Chromium and opens an address in it.
func browse(t *testing.T, url string) *tab {
	t.Helper()
	path := needs(t, "chromium")
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1100, 820)}
	for _, name := range []string{"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync"} {
		options = append(options, chromedp.Flag(name, true))
	}
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute) // the test's own ends before the browser is closed
	ctx, cancel := chromedp.NewExecAllocator(ctx, options...)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		chromedp.Cancel(ctx) // and wait for its end
		cancel()
		stop()
	})
	b := &tab{t, ctx}
	b.do(chromedp.Navigate(url))
	return b
}

// another opens a tab of the same browser.
func (b *tab) another(url string) *tab {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	b.t.Cleanup(cancel)
	other := &tab{b.t, ctx}
	other.do(chromedp.Navigate(url))
	return other
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

// eval is the value of an expression of JavaScript.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, expression)
	return v
}

// until waits for an expression to become true.
func (b *tab) until(expression string) {
	b.t.Helper()
	for start := time.Now(); !eval[bool](b, "!!("+expression+")"); time.Sleep(30 * time.Millisecond) {
		if time.Since(start) > 30*time.Second {
			b.t.Fatalf("this did not come true: %s\nThe page says: %s", expression, b.text())
		}
	}
}

func (b *tab) text() string {
	b.t.Helper()
	return eval[string](b, "document.querySelector('main').innerText")
}

func (b *tab) shows(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.querySelector('main').innerText.includes(%q)", text))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.querySelector(%q)?.checkVisibility()", selector))
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// ask writes a message and sends it as people do.
func (b *tab) ask(text string, files ...string) {
	b.t.Helper()
	b.until("document.querySelector('#stop').hidden && !document.querySelector('#send').disabled")
	if len(files) > 0 {
		b.do(chromedp.SetUploadFiles(chromedp.CSS("#files"), files))
	}
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#text').value = ''"), chromedp.SendKeys(chromedp.CSS("#text"), text+"\r"))
}

// idle waits for the end of a run.
func (b *tab) idle() {
	b.t.Helper()
	b.until("document.querySelector('#stop').hidden && !document.querySelector('#send').disabled")
}

func (b *tab) picture(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	b.do(chromedp.Evaluate[chromedp.Void]("document.activeElement.blur()"), chromedp.Sleep(300*time.Millisecond))
	data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(*screenshots, name), data, 0o644))
}

func (b *tab) dark(on bool) {
	b.t.Helper()
	scheme := "light"
	if on {
		scheme = "dark"
	}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}

func csvFile(t *testing.T) string {
	name := filepath.Join(t.TempDir(), "cities.csv")
	require.NoError(t, os.WriteFile(name, []byte("city,people\nOslo,709\nBergen,291\nTrondheim,212\nStavanger,146\nTromsø,78\n"), 0o644))
	return name
}

// A user uploads a file, asks for a chart, and asks again about the same data, also
// after the server was killed.
func TestBrowser_chart(t *testing.T) {
	needs(t, "bwrap")
	p := launch(t)
	b := browse(t, p.url)
	b.ask("Draw a chart of this file.", csvFile(t))
	b.until("document.querySelector('img.figure')?.naturalWidth > 200")
	b.shows("Here is the chart")
	b.idle()
	assert.Contains(t, b.text(), "cities.csv: 5 rows")
	assert.Equal(t, 2, eval[int](b, "document.querySelectorAll('.call').length"))
	b.picture("chat.png")
	b.dark(true)
	b.picture("chat-dark.png")
	b.dark(false)

	b.ask("And the total?")
	b.shows("5 rows, total 1436, mean 287.20")
	b.shows("summary.txt (")
	b.idle()
	assert.Equal(t, "5 rows, total 1436, mean 287.20\n", eval[string](b, "fetch(document.querySelector('article a.chip').href).then(r => r.text())"))

	require.Equal(t, -1, p.end(syscall.SIGKILL))
	p.again()
	b.ask("The sum, once more.")
	b.shows("the program that kept the interpreter was restarted")
	b.shows("files are kept")
	b.idle()
	assert.NotContains(t, b.text(), "The program failed", "the file was there again, so it could be read anew")

	before := b.text()
	b.do(chromedp.Reload())
	b.idle()
	b.shows("I have written the result")
	assert.Equal(t, strings.Fields(before), strings.Fields(b.text()), "a page that is loaded again shows the same")
}

// A call waits for approval, over a restart of the server.
func TestBrowser_approval(t *testing.T) {
	p := launch(t)
	b := browse(t, p.url)
	b.ask("Please refund order A-1001.")
	b.until("document.querySelector('.approve')")
	assert.Contains(t, b.text(), `{"order":"A-1001"}`)
	b.picture("chat-approval.png")
	require.Equal(t, 0, p.end(syscall.SIGTERM))
	p.again()
	b.do(chromedp.Reload())
	b.click(".approve")
	b.shows("The answer to the refund was: refunded A-1001")
	b.idle()
	assert.Equal(t, 1, eval[int](b, "document.querySelectorAll('.call').length"), "the card that asked shows the outcome")

	b.ask("Please refund order A-1001.")
	b.click(".approve:not([hidden])")
	b.shows("was refunded before")
	b.idle()

	b.ask("Please refund order A-1002.")
	b.click(".reject")
	b.shows("The user has said no.")
	b.idle()

	// The first message is written anew.
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('.prompt .edit').click()"))
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#text').value = ''"), chromedp.SendKeys(chromedp.CSS("#text"), "Which orders are there?\r"))
	b.shows("Mina has two orders")
	b.idle()
	assert.Equal(t, 1, eval[int](b, "document.querySelectorAll('.prompt').length"), "what followed is replaced")
	assert.Contains(t, b.text(), `"id":"A-1001","customer":"Mina Okafor","item":"walking boots","cents":12900,"refunded":true`)
}

// A program prints while it runs; the page is loaded again in the middle, a second
// tab shows the same, and stops it.
func TestBrowser_reloadAndStop(t *testing.T) {
	needs(t, "bwrap")
	p := launch(t)
	b := browse(t, p.url)
	b.ask("Show me primes.")
	b.until("/found = \\[\\]/.test(document.querySelector('.call pre.code')?.textContent) && document.querySelector('.call .state.busy').textContent.includes('written')")
	b.until("document.querySelector('.out')?.textContent.includes('11 13')")
	b.do(chromedp.Reload())
	b.until("document.querySelector('.out')?.textContent.startsWith('2 3 5 7 11 13 17')")
	other := b.another(eval[string](b, "location.href"))
	other.until("document.querySelector('.out')?.textContent.startsWith('2 3 5 7 11 13 17 19')")
	other.click("#stop")
	other.shows("Stopped.")
	b.shows("Stopped.")
	b.idle()
	assert.Less(t, len(strings.Fields(b.textOf(".out"))), 46, "before its end")

	// What one tab sends the other one shows.
	other.ask("What can you do?")
	b.shows("I am a scripted model")
	b.idle()
	assert.Equal(t, 2, eval[int](b, "document.querySelectorAll('.prompt').length"))
}

// The server is killed while a program runs.
func TestBrowser_killed(t *testing.T) {
	needs(t, "bwrap")
	p := launch(t)
	b := browse(t, p.url)
	b.ask("Show me primes.")
	b.until("document.querySelector('.out')?.textContent.includes('7 11')")
	require.Equal(t, -1, p.end(syscall.SIGKILL))
	b.shows("trying again")
	p.again()
	b.shows("The server was restarted while it answered")
	assert.Contains(t, b.textOf(".call .code"), "found = []", "what was stored is shown")
	b.click(".again button")
	b.shows("These are the primes below 200")
	b.idle()
	assert.Equal(t, 1, eval[int](b, "document.querySelectorAll('.call').length"), "a call that may have happened is not made again")
}

func (b *tab) textOf(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

// A picture is shown and sent, and is still there when its message is edited.
func TestBrowser_picture(t *testing.T) {
	p := launch(t)
	b := browse(t, p.url)
	name := filepath.Join(t.TempDir(), "dot.png")
	require.NoError(t, os.WriteFile(name, picture(t), 0o644))
	b.ask("What is on this?", name)
	b.shows("I see that you have sent a picture.")
	b.until("document.querySelector('.prompt img')?.naturalWidth === 3")
	b.idle()
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('.prompt .edit').click()"))
	b.until("document.querySelector('#picked .chip') && document.querySelector('#text').value === 'What is on this?'")
	b.do(chromedp.SendKeys(chromedp.CSS("#text"), " Look again.\r"))
	b.shows("Look again.")
	b.shows("I see that you have sent a picture.")
	b.until("document.querySelectorAll('.prompt').length === 1 && document.querySelector('.prompt img')?.naturalWidth === 3")
	b.idle()

	bad := filepath.Join(t.TempDir(), "bad.png")
	require.NoError(t, os.WriteFile(bad, []byte("no picture"), 0o644))
	b.ask("And this?", bad)
	b.shows("The picture bad.png cannot be sent")
	assert.Equal(t, "And this?", eval[string](b, "document.querySelector('#text').value.trim()"), "the message is still there to be mended")
}

// HTML that code has made is shown, and runs nothing.
func TestBrowser_html(t *testing.T) {
	b := browse(t, launch(t).url)
	b.do(chromedp.Evaluate[chromedp.Void](`show.figure({call: "call_1", html: "<table><tr><td>forty-two</td></tr></table><script>parent.hacked = 1</scr" + "ipt><img src=x onerror='parent.hacked = 1'><img src='https://example.com/tracker.png'>"})`))
	b.until("document.querySelector('.call iframe')?.contentDocument?.body?.innerText.includes('forty-two')")
	b.until("parseInt(document.querySelector('.call iframe').style.height) > 20")
	assert.True(t, eval[bool](b, "window.hacked === undefined"))
	b.do(chromedp.Evaluate[chromedp.Void]("write('<img src=x onerror=\"window.hacked = 1\"> and `<b>code</b>`\\n\\n```\\n<i>x</i>\\n```')"))
	b.shows(`<img src=x onerror="window.hacked = 1"> and <b>code</b>`)
	assert.True(t, eval[bool](b, "window.hacked === undefined && !document.querySelector('.text img, .text b, .text i')"))
}
