package occ_test

import (
	"errors"
	"fmt"
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

// TestJudgedOnce: what was fetched before is not counted again with each further fetch, which
// would cost the square of the number of keys; and what is not locked is validated all the same.
func TestJudgedOnce(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		_, one := b.session()
		_, two := b.session()
		must(t, one.Begin())
		for i := range 40 {
			_, err := one.Stage(b.table, fmt.Append(nil, "k", i), i != 20)
			must(t, err)
			must(t, one.Execute())
			if i >= 20 && one.Judged() != i+1 {
				t.Fatalf("%d of %d items are not to be looked at again", one.Judged(), i+1)
			}
		}
		must(t, b.do(two, put("k20", "1"))) // read, and found absent
		_, err := one.Stage(b.table, []byte("last"), true)
		must(t, err)
		if err = one.Execute(); err == nil {
			err = one.Certify() // policy ford validates no sooner
		}
		if !errors.Is(err, occ.ErrConflict) {
			t.Errorf("a key that was read has changed since: %v", err)
		}
		must(t, one.Rollback())
	})
}
