package fnloop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// ErrMismatch: the model's answer does not fit the type that was asked for.
var ErrMismatch = errors.New("fnloop: the answer does not fit its type")

// RunAs is [Loop.Run], or [Loop.Continue] when from is not nil, with an answer
// that is a T. The request asks for T's schema; [SchemaFor] says which types can
// be used. The answer is decoded as strictly as arguments are. If it has several
// messages, the value is the last one and the Answer has the text of all.
func RunAs[T any](ctx context.Context, l *Loop, from *Answer, prompt string, parts ...Content) (T, *Answer, error) {
	return runAs[T](ctx, l, from, prompt, parts, options{})
}

// EventsAs does the same as [RunAs] and reports what happens, as [Loop.Events]
// does. The T is the Value of the [Done] event, unless that has an error beside
// it.
func EventsAs[T any](ctx context.Context, l *Loop, from *Answer, prompt string, parts ...Content) iter.Seq2[Event, error] {
	return l.events(ctx, func(ctx context.Context, emit func(Event)) (Done, error) {
		value, answer, err := runAs[T](ctx, l, from, prompt, parts, options{emit: emit})
		if err != nil {
			return Done{Answer: answer}, err
		}
		return Done{Answer: answer, Value: value}, nil
	})
}

func runAs[T any](ctx context.Context, l *Loop, from *Answer, prompt string, parts []Content, opts options) (T, *Answer, error) {
	var value T
	typed, err := goTypeOf(reflect.TypeFor[T]())
	if err != nil {
		if from == nil {
			from = &Answer{}
		}
		r := &run{answer: newAnswer(StopInvalid)}
		r.loadFrom(from, prompt, parts) // nothing is lost
		return value, r.answer, &ConfigError{Field: "answer type", Reason: bare(err), Err: err}
	}
	var text string
	opts.format, opts.value = typed.answerFormat(), &text
	answer, err := l.run(ctx, from, prompt, parts, opts)
	if err != nil {
		return value, answer, err
	}
	if err := typed.decoder.Decode([]byte(text), &value); err != nil {
		var zero T
		answer.Stop = StopMismatch
		return zero, answer, fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	return value, answer, nil
}

// answerFormat asks for an answer of the type.
func (t *goType) answerFormat() *responses.ResponseFormatTextConfigUnionParam {
	return &responses.ResponseFormatTextConfigUnionParam{
		OfJSONSchema: &responses.ResponseFormatTextJSONSchemaConfigParam{Name: "answer", Schema: maps.Clone(t.top), Strict: param.NewOpt(true)},
	}
}
