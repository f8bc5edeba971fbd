package sentinel_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"txnode/internal/sentinel"
)

// equal is an error that says by a method what it is.
type equal struct{ to error }

func (e equal) Error() string        { return "equal to " + e.to.Error() }
func (e equal) Is(target error) bool { return target == e.to }

// TestIs: it says what errors.Is says.
func TestIs(t *testing.T) {
	mine := errors.New("mine")
	errs := []error{
		nil, mine, errors.New("mine"), io.EOF,
		fmt.Errorf("of no use: %w", mine), fmt.Errorf("twice: %w", fmt.Errorf("of no use: %w", mine)),
		errors.Join(io.EOF, mine), errors.Join(io.EOF), equal{mine}, equal{io.EOF}, fmt.Errorf("like %v", mine),
	}
	found := 0
	for _, err := range errs {
		for _, target := range []error{nil, mine, io.EOF} {
			got, want := sentinel.Is(err, target), errors.Is(err, target)
			if got != want {
				t.Errorf("%v is %v: %v", err, target, got)
			}
			if want {
				found++
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d of the errors are what they are asked for", found)
	}
}

// TestNothingIsAllocated: neither for what is compared, nor for what is unwrapped.
func TestNothingIsAllocated(t *testing.T) {
	mine := errors.New("mine")
	wrapped := fmt.Errorf("of no use: %w", io.EOF)
	n := testing.AllocsPerRun(100, func() {
		if sentinel.Is(nil, io.EOF) || sentinel.Is(mine, io.EOF) || !sentinel.Is(wrapped, io.EOF) {
			t.Error("they are told apart wrongly")
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}
