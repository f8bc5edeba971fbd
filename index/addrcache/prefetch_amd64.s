#include "textflag.h"

// func prefetch(l *line)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVQ l+0(FP), AX
	PREFETCHT0 (AX)
	RET
