// Package channeltest has the suite that package channel passes on every fabric, and a [World] of
// members for other tests.
package channeltest
