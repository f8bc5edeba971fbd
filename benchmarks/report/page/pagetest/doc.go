// Package pagetest shows pages to tests as a browser draws them.
package pagetest
