package command

import (
	"context"
	"time"
)

// ReplaceLost is what check --replace-lost does before the check, with another patience.
func ReplaceLost(ctx context.Context, w World, dir string, patience time.Duration) (code int, err error) {
	if err = rebuildLost(ctx, &w, dir, patience); err != nil {
		code = exitCode(err)
	}
	return code, err
}
