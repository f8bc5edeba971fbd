package prom

import "github.com/prometheus/client_golang/prometheus"

// described is what the metrics are.
type described struct {
	transactions, conflicts, retries, duration                   *prometheus.Desc
	verbs, roundTrips, bytesRead, bytesWritten                   *prometheus.Desc
	workersLimit, workers, waiters, waits, waited                *prometheus.Desc
	rejoins, coordinators, recovered, bladesLost, damage, mended *prometheus.Desc
	segments, segmentsLost, segmentsUnavailable                  *prometheus.Desc
	copiesMissing, copiesBuilding, copyDone, copyTotal, copyLeft *prometheus.Desc
	bladeUp, bladeSize, bladeUsed, bladeFree                     *prometheus.Desc
	tableOps, tableConflicts                                     *prometheus.Desc
	all                                                          []*prometheus.Desc
}

// describe names the metrics.
func describe(labels prometheus.Labels) (d described) {
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		x := prometheus.NewDesc("txnode_"+name, help, variable, labels)
		d.all = append(d.all, x)
		return x
	}
	d.transactions = desc("transactions_total",
		"Transactions by how they ended: committed, rolled_back by their own function, failed.", "outcome")
	d.conflicts = desc("conflicts_total", "Attempts that did not commit because of another transaction, by reason.",
		"reason")
	d.retries = desc("retries_total", "Attempts that were begun because the one before had failed.")
	d.duration = desc("transaction_duration_seconds",
		"Time from a call to the end of its transaction, with all attempts, without the wait for a worker; of those "+
			"transactions that were timed.", "kind")

	d.verbs = desc("verbs_total", "Verbs posted by transactions.", "verb", "phase")
	d.roundTrips = desc("round_trips_total", "Waits of transactions for at least one completion.", "phase")
	d.bytesRead = desc("read_bytes_total", "Bytes that transactions read from blades.", "phase")
	d.bytesWritten = desc("written_bytes_total", "Bytes that transactions wrote to blades.", "phase")

	d.workersLimit = desc("workers_limit", "How many workers there can be: transactions that run at once.")
	d.workers = desc("workers", "Workers that there are, by state.", "state")
	d.waiters = desc("worker_waiters", "Calls that wait now because all workers are in use.")
	d.waits = desc("worker_waits_total", "Calls that have waited for a worker.")
	d.waited = desc("worker_wait_seconds_total", "Time that calls have waited for a worker.")

	d.rejoins = desc("rejoins_total", "Workers that went on as another coordinator after they were cut off.")
	d.coordinators = desc("recovered_coordinators_total", "Coordinators that died or were cut off, and were recovered.")
	d.recovered = desc("recovered_transactions_total", "Transactions that recoveries have finished or undone.",
		"outcome")
	d.bladesLost = desc("blades_lost_total", "Blades that were declared dead.")
	d.damage = desc("damage_total",
		"Transactions that failed, and recoveries that left something undone, because data is damaged or lost.",
		"met_by")
	d.mended = desc("mended_records_total",
		"Damaged records that were served from an intact copy, or written over, and are whole since.")
	d.segments = desc("segments", "Segments of records and indexes.")
	d.segmentsLost = desc("segments_lost", "Segments of which every copy is lost.")
	d.segmentsUnavailable = desc("segments_unavailable",
		"Segments of which no member of the database hears a blade with a copy, and that are not given up.")
	d.copiesMissing = desc("segment_copies_missing", "Copies of segments that should exist and do not.")
	d.copiesBuilding = desc("segment_copies_building",
		"Copies of segments that are being built, by this process or another one.")
	d.copyDone = desc("copied_bytes",
		"Bytes that this process has looked at for the copies that it builds; it begins anew in each epoch.")
	d.copyTotal = desc("copied_target_bytes",
		"Bytes that this process has to look at for the copies that it builds; 0: it builds none.")
	d.copyLeft = desc("copied_left_seconds", "How long this process still builds copies, at the rate so far.")

	d.bladeUp = desc("blade_up", "Whether a blade takes part: 0 from when it was declared dead until it is back.",
		"blade")
	d.bladeSize = desc("blade_size_bytes", "Size of a blade.", "blade")
	d.bladeUsed = desc("blade_used_bytes", "Memory of a blade that was handed out, in segments.", "blade")
	d.bladeFree = desc("blade_free_bytes", "Memory of a blade that can be handed out.", "blade")

	d.tableOps = desc("table_operations_total",
		"Keys that committed transactions have read, updated, inserted or deleted.", "table", "operation")
	d.tableConflicts = desc("table_conflicts_total", "Attempts that did not commit because of a key of the table.",
		"table")
	return d
}
