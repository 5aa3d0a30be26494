package limit_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/limit"
)

func TestDefaults(t *testing.T) {
	var none limit.Bounds
	assert.NoError(t, none.Check())
	limits := none.Limits(fnloop.Limits{})
	assert.Equal(t, fnloop.Limits{Time: 10 * time.Second, Memory: 512 << 20}, limits)
	assert.Equal(t, limit.Spec{Memory: 512 << 20, Tmp: 64 << 20, PIDs: 128, OpenFiles: 256}, none.Spec(limits.Memory))

	own := limit.Bounds{Time: time.Second, Memory: 1 << 30, PIDs: 1, CPUs: .5, Tmp: 1 << 30, OpenFiles: 4096}
	assert.Equal(t, fnloop.Limits{Time: time.Second, Memory: 1 << 30}, own.Limits(fnloop.Limits{}))
	assert.Equal(t, fnloop.Limits{Time: time.Minute, Memory: 1 << 30}, own.Limits(fnloop.Limits{Time: time.Minute}), "the program's come first")
	spec := own.Spec(64 << 20)
	assert.Equal(t, limit.Spec{Memory: 64 << 20, Tmp: 16 << 20, PIDs: 1, CPUs: .5, OpenFiles: 4096}, spec, "what can be written is a part of the memory")
	assert.Equal(t, map[string]int64{"core": 0, "fsize": 16 << 20, "nofile": 4096, "stack": 8 << 20}, map[string]int64(spec.Rlimits()))
}

func TestCheck(t *testing.T) {
	for field, bounds := range map[string][]limit.Bounds{
		"PIDs":      {{PIDs: -1}, {PIDs: math.MaxInt32}},
		"CPUs":      {{CPUs: -1}, {CPUs: math.Inf(1)}, {CPUs: math.NaN()}},
		"Tmp":       {{Tmp: -1}},
		"OpenFiles": {{OpenFiles: -1}, {OpenFiles: 3}, {OpenFiles: 1 << 30}},
	} {
		for _, b := range bounds {
			assert.ErrorContains(t, b.Check(), field+" is ", "%+v", b)
		}
	}
}

func TestCheckProgram(t *testing.T) {
	var b limit.Bounds
	for field, test := range map[string]struct {
		p      fnloop.Program
		limits fnloop.Limits
	}{
		"source":        {fnloop.Program{Source: strings.Repeat("#", 5<<20)}, fnloop.Limits{Time: 1, Memory: limit.MinMemory}},
		"limits.time":   {fnloop.Program{}, fnloop.Limits{Time: -1, Memory: 64 << 20}},
		"limits.memory": {fnloop.Program{}, fnloop.Limits{Time: 1, Memory: 1 << 20}},
	} {
		err := b.CheckProgram(test.p, test.limits, 0)
		e, ok := errors.AsType[*fnloop.ProgramError](err)
		assert.True(t, ok && e.Field == field, "%s: %v", field, err)
	}
	fits := fnloop.Limits{Time: 1, Memory: 64 << 20}
	assert.NoError(t, b.CheckProgram(fnloop.Program{}, fits, 0))
	assert.NoError(t, b.CheckProgram(fnloop.Program{}, fits, 64<<20))
	assert.ErrorContains(t, b.CheckProgram(fnloop.Program{}, fits, 63<<20), "the host has")
}
