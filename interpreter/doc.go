// Package interpreter keeps a Python interpreter alive between pieces of code,
// as a notebook does: what one cell defines the next one finds.
//
// [Open] starts a [Session] on a [fnloop.Runner] that can keep an interpreter.
// [Session.Run] runs a cell and gives its [Execution]: what it printed, the
// value of its last expression, figures and tables as MIME types, the error
// with its traceback, and the files that it made or changed. Files go in and
// out through [Session.Put] and [Session.Get].
//
// A cell that hangs, crashes or runs out of memory costs the session as little
// as can be. It is interrupted first. Where it has to be killed a copy of the
// interpreter takes over, which was made before the cell ran: the variables are
// as they were, and [Execution.Restored] says so. Where there is no copy,
// [Execution.Loss] says what is gone. No cell is ever run twice.
//
// The code of a session has the same sandbox as a program of the runner: no
// network, no file of the host, and limits on memory, processes and time.
// What comes out of it is the word of code that nobody trusts. HTML and SVG of
// a [Display] can hold scripts.
package interpreter
