package occ_test

import (
	"errors"
	"testing"

	"txnode/occ"
)

// TestCertify: under policy ford, reads are validated at commit; a caller that
// acts on them without committing asks first, and keys that it has only announced
// by then do not stand in the way.
func TestCertify(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		_, one := b.session()
		_, two := b.session()
		must(t, b.do(one, put("x", "1"), put("y", "1")))
		must(t, one.Begin())
		must(t, b.apply(one, get("x")))
		must(t, b.do(two, put("x", "2"), put("y", "2")))
		err := b.apply(one, get("y")) // with x, a state that never was
		if err == nil {
			_, e := one.Stage(b.table, []byte("z"), true)
			must(t, e)
			err = one.Certify()
		}
		var c *occ.ConflictError
		if !errors.As(err, &c) || c.Reason != occ.AbortValidation {
			t.Errorf("two reads of different times: %v", err)
		}
		must(t, one.Rollback())

		must(t, one.Begin())
		must(t, b.apply(one, get("x")))
		_, err = one.Stage(b.table, []byte("z"), true)
		must(t, err)
		must(t, one.Certify())
		must(t, one.Rollback())
		must(t, one.Certify()) // of nothing
	})
}
