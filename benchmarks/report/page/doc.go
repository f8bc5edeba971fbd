// Package page writes a page of curves: figures (SVG), tables, the constants of a model.
// It is one file of HTML that needs no script and loads nothing.
package page
