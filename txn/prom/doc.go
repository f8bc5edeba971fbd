// Package prom shows a database to Prometheus: it is a collector for what [txn.DB.Metrics] and
// [txn.DB.Redundancy] tell.
//
//	registry.MustRegister(prom.NewCollector(db, prom.Options{}))
//
// It is a module of its own, so that only programs that import it download Prometheus' client
// library. A scrape reads running totals; it takes no transaction's time, and waits for none. What
// a worker did in its last few dozen transactions may be missing while it is at work. The collector
// can be scraped until its process ends, also after [txn.DB.Close].
//
// Names begin with txnode_ and end with their unit. The program in the directory example serves
// them, with deadlines and an orderly end. Useful questions:
//
//	commits a second
//	    rate(txnode_transactions_total{outcome="committed"}[1m])
//	slowest percent
//	    histogram_quantile(0.99,
//	    rate(txnode_transaction_duration_seconds_bucket{kind="update"}[5m]))
//	why attempts are in vain
//	    sum by (reason) (rate(txnode_conflicts_total[5m]))
//	calls that wait for a worker, on average
//	    rate(txnode_worker_wait_seconds_total[5m])
//	room
//	    txnode_blade_free_bytes / txnode_blade_size_bytes
//	not fully replicated
//	    txnode_segment_copies_missing > 0
//	data that cannot be read, for good or for now
//	    txnode_segments_lost > 0 or txnode_segments_unavailable > 0
//	how long copies are still built, by this process
//	    txnode_copied_left_seconds
package prom
