// Package published holds what others have measured and what their protocols
// cost, as tables and formulas, to be set beside our results.
//
// The throughput and latency of FORD+ and SMART-DTX are those of figure 10 of
// the SMART paper ("Scaling Up Memory Disaggregated Applications with SMART",
// ASPLOS 2024), retyped from the raw data of its artifact
// (github.com/madsys-dev/smart, ae/raw-reference, fig10-smallbank and
// fig10-tatp). [Hardware] says what they were measured on; nothing here was
// measured by us.
//
// The verbs of FORD are counted in its public code (github.com/minghust/ford,
// and as SMART-DTX in github.com/madsys-dev/smart) for transactions that
// commit without a conflict, with all addresses cached.
package published
