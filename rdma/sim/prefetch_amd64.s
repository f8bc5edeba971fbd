#include "textflag.h"

// func prefetch(p unsafe.Pointer, n uintptr)
// Starts loading the n cache lines at p.
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
loop:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	DECQ CX
	JG   loop
	RET
