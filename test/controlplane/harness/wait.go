package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// patience is how long tests wait for what happens by itself. A test that
// passes never waits as long.
const patience = 3 * time.Minute

// slow is how long a wait is not worth a word.
const slow = 10 * time.Second

// permanent is an error that waiting does not mend.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Wait calls a check until it passes or the context ends.
func (c *Cluster) Wait(ctx context.Context, what string, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		if p := (permanent{}); errors.As(err, &p) {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w, last: %w", what, ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Eventually calls a check until it passes, and fails the test where it does
// not in good time. It may be called when the test cleans up.
func (c *Cluster) Eventually(tb testing.TB, what string, check func() error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	start, last := time.Now(), error(nil)
	err := c.Wait(ctx, what, func() error {
		err := check()
		if err != nil {
			last = err
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	if took := time.Since(start); took > slow {
		tb.Logf("waited %v for %s, last because: %v", took.Round(time.Second), what, last)
	}
}
