// Package tpcc is the TPC-C benchmark (standard specification, revision 5.11, 2010), written once
// against package workload. It needs a store with ordered tables ([workload.Ranger]). Figures
// that it gives are not TPC-C results: nothing was audited, terminals are workers, and there is
// no full disclosure.
//
// # Data
//
// Eleven tables: TPC-C's nine, and two indexes that transactions keep by themselves. Keys pack
// the parts of TPC-C's primary keys into 64 bits, in their order; w warehouse, d district, c
// customer, o order.
//
//	table           key             value  rows per warehouse   ranges
//	warehouse       w                  93         1
//	district        w d                98        10
//	customer        w d c             670    30,000
//	customer_name   w d name c         16    30,000             customers of a last name
//	history         w d c payment      48    30,000
//	new_order       w d o               7     9,000             the oldest of a district
//	orders          w d o              20    30,000
//	customer_order  w d c o             1    30,000             the last of a customer
//	order_line      w d o line         55   300,000             of an order, or of the last 20
//	item            i                  88   100,000 in all
//	stock           w i               310   100,000
//
// A last name is one of 1,000, and its number is in the key. History has no primary key in TPC-C;
// here the payments of a customer are numbered. Values are of fixed size, little endian; texts
// are padded with zeros. The tables that are read by ranges are ordered, and orders, which only
// the audit reads so.
//
// Amounts are integers of cents, and taxes and discounts of 0.0001, as the specification has them.
// So sums are exact, and the conditions are held against equality. The total of a New-Order has
// both taxes and the discount as factors and is rounded once.
//
// # Transactions
//
//	type         share  does
//	NewOrder        45  inserts an order of 5 to 15 lines; 1 % of the lines from another
//	                    warehouse; 1 % roll back
//	Payment         43  15 % by customers of another warehouse; 60 % by last name
//	OrderStatus      4  the last order of a customer; 60 % by last name
//	Delivery         4  the oldest order of each district, ten in one transaction
//	StockLevel       4  the stock of the last 20 orders' items, strictly serializable, though
//	                    TPC-C asks for less
//
// Worker i is a terminal of warehouse i mod warehouses. Numbers of customers and items are drawn by
// NURand. Delivery runs at once and not from a queue. Keying and think times are left out unless
// [Options].Pace asks for them.
//
// # Conditions
//
// After a run every row is read, and the twelve consistency conditions of clause 3.3.2 must hold
// for every warehouse, district, order and customer. Condition 11 says that 2,100 orders of each
// district are not new; that is so in the beginning, and later it is 2,100 plus what was delivered
// since. Beyond that: the indexes fit their tables, customers' counters and stock's totals are
// those of history, orders and lines, and the numbers of orders, payments and deliveries are those
// at the start plus what committed.
package tpcc
