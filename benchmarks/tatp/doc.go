// Package tatp is the TATP benchmark ("Telecom Application Transaction
// Processing Benchmark", description version 1.0, 2009) with the parameters of
// FORD's evaluation as defaults, written once against package workload. Unlike
// FORD's, the rules that tie the rows to each other are checked.
//
// # Data
//
// Subscribers are numbered from 0 (s). Types of access (ai) and of special
// facilities (sf) are 1 to 4; call forwarding starts at 0, 8 or 16 o'clock.
//
//	table                  key                        value  rows per subscriber
//	0 subscriber           s                             40  1
//	1 secondary            decimal digits of s, BCD       8  1
//	2 special facility     s | sf<<32                     8  1 to 4 (2.5)
//	3 access info          s | ai<<32                    16  1 to 4 (2.5)
//	4 call forwarding      s | sf<<32 | start<<40        16  0 to 12 (3.75)
//
// The secondary table stands for TATP's unique index on sub_nbr, the 15-digit
// number of a subscriber. Layouts of values, little endian; bytes not named are
// zero:
//
//	subscriber        0 sub_nbr, BCD, 8 | 8 msc_location, 4 | 12 vlr_location, 4 |
//	                  16 bit_1..10, 2 | 18 hex_1..10, half a byte each, 5 | 23 byte2_1..10, 10
//	secondary         0 s, 4
//	special facility  0 is_active | 1 error_cntrl | 2 data_a | 3 data_b, 5 letters
//	access info       0 data1 | 1 data2 | 2 data3, 3 letters | 5 data4, 5 letters
//	call forwarding   0 end_time | 1 numberx, 15 digits
//
// A subscriber has access info of 1 to 4 distinct types, each number of types
// equally likely, and special facilities likewise. 85 % of the facilities are
// active; for each facility and each start time there is call forwarding with
// probability 1/2, which ends at an hour from 1 to 24, whatever its start. This is
// the state to which TATP's inserts and deletes lead in the long run, and which
// FORD's program loads, too; TATP's own initial population has other ends (1 to
// 8 hours after the start). The rows of a subscriber depend on its number alone,
// so that every database of the same size is loaded with the same rows.
//
// # Transactions
//
// Subscribers are drawn with TATP's non-uniform distribution, s = ((a number
// below n) OR (a number from 0 to A)) mod n, with A = 65,535 up to a million
// subscribers, 1,048,575 up to ten, and 2,097,151 beyond. With 100,000
// subscribers the most frequent one gets 0.66 % of the draws, and 1 % of the
// subscribers get 35.4 %. Everything else is drawn uniformly.
//
//	type                  share  round trips of reads (in parentheses: locked for writing)
//	GetSubscriberData        35  subscriber
//	GetNewDestination        10  special facility; call forwarding of 1 to 3 start times
//	GetAccessData            35  access info
//	UpdateSubscriberData      2  (subscriber, special facility)
//	UpdateLocation           14  secondary; (subscriber)
//	InsertCallForwarding      2  secondary; special facility; (call forwarding)
//	DeleteCallForwarding      2  secondary; (call forwarding)
//
// # Outcomes
//
// TATP draws keys of rows that may not exist, and counts that as an expected
// failure. A Client reports it as workload.RowAbsent: no access info of the
// type drawn (37.5 % of those draws), no special facility, no row to delete, no
// active facility or no number for GetNewDestination. InsertCallForwarding
// reports workload.RolledBack if the row exists. Nothing of such a transaction
// takes effect; what it read existed at one moment, which costs a validation where
// more than one row was read.
//
// GetNewDestination succeeds, as TATP defines it, if any of the call forwarding
// rows that start no later than the hour drawn ends after the other hour drawn.
// FORD's program differs in two ways, for which there is Options.FORDRules: it
// gives up if any of these rows is absent, and it takes an insert over an
// existing row for an update. With default options GetNewDestination succeeds
// 20.4 % of the time, by FORD's rules 8.7 %.
package tatp
