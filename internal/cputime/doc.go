// Package cputime tells benchmarks what they cost: on a machine that others use
// too, CPU time says more than the time that passed.
package cputime
