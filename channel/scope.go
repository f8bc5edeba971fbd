package channel

import (
	"fmt"
	"strings"
)

// Scope is a prefix of names. Objects in different scopes have different names.
//
// A name is made of parts of a-z, 0-9, '.', '_' and '-', joined by '/', at most 255 bytes. A part
// that begins with '.' belongs to this package.
type Scope struct {
	m      *Member
	prefix string
	err    error
}

// Scope returns the scope of that name within the member's names.
func (m *Member) Scope(name string) Scope { return Scope{m: m}.Scope(name) }

// Scope returns a scope within s. An impossible name is an error of the first object that is opened
// in it.
func (s Scope) Scope(name string) Scope {
	full, err := s.name(name)
	return Scope{m: s.m, prefix: full + "/", err: err}
}

// name is the full name of what is called name in s.
func (s Scope) name(name string) (string, error) {
	if s.err != nil {
		return "", s.err
	}
	full := s.prefix + name
	if len(full) > 255 {
		return "", fmt.Errorf("%w: %q has %d bytes: at most 255 are possible", ErrName, full, len(full))
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
			return "", fmt.Errorf("%w: part %q of %q: use a-z, 0-9, '.', '_' and '-', with no '.' in front",
				ErrName, part, full)
		}
	}
	return full, nil
}
