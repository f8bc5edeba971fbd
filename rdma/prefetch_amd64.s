#include "textflag.h"

// func prefetch(p unsafe.Pointer, n uint32, write bool)
TEXT ·prefetch(SB), NOSPLIT, $0-13
	MOVQ p+0(FP), BX
	MOVL n+8(FP), CX
	CMPB write+12(FP), $0
	JNE  owned

shared:
	PREFETCHT0 (BX)
	ADDQ $64, BX
	SUBQ $64, CX
	JA   shared
	RET

owned:
	BYTE $0x0f; BYTE $0x0d; BYTE $0x0b // PREFETCHW (BX)
	ADDQ $64, BX
	SUBQ $64, CX
	JA   owned
	RET
