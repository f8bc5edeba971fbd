package occ

import "txnode/index/addrcache"

// ForgetAddresses empties the address cache.
func (e *Engine) ForgetAddresses() {
	e.cache, e.runs = addrcache.New(e.opts.CacheBytes), addrcache.NewRuns(e.opts.CacheBytes)
}
