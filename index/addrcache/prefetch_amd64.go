package addrcache

//go:noescape
func prefetch(l *line)
