// Package channeltest has a host for tests of package channel, and of what uses that package: a
// [Catalog] in the memory of the process, for members on any fabric.
package channeltest
