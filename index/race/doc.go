// Package race is RACE hashing (Zuo et al., "One-sided RDMA-Conscious Extendible
// Hashing for Disaggregated Memory"): an extendible hash table on the memory
// blades that clients search, change and grow with one-sided verbs alone.
package race
