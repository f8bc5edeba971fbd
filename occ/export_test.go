package occ

import "txnode/index/addrcache"

// ForgetAddresses empties the address cache.
func (e *Engine) ForgetAddresses() { e.cache = addrcache.New(e.opts.CacheBytes) }
