// Package mdtable writes tables of docs/ in Markdown: published values beside those of a model,
// split where they would be wider than a page.
package mdtable
