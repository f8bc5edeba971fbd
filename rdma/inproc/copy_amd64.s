#include "textflag.h"

// func copyWords(dst, src unsafe.Pointer, n uintptr)
// n is a multiple of 8. Words are copied in increasing address order. Sixteen
// byte moves of 16-byte aligned memory are single accesses on every amd64
// processor with AVX; of memory that is only 8-byte aligned they are at worst
// two, split at a word.
TEXT ·copyWords(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SUBQ $64, CX
	JB   tail
loop:
	MOVOU (SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3
	MOVOU X0, (DI)
	MOVOU X1, 16(DI)
	MOVOU X2, 32(DI)
	MOVOU X3, 48(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $64, CX
	JAE  loop
tail:
	ADDQ $64, CX
	JZ   done
word:
	MOVQ (SI), AX
	MOVQ AX, (DI)
	ADDQ $8, SI
	ADDQ $8, DI
	SUBQ $8, CX
	JNZ  word
done:
	RET

// func prefetch(wrs unsafe.Pointer, n uintptr, blades unsafe.Pointer, nblades uintptr)
// For each of n work requests (56 bytes: blade at 2, offset at 8, length at 20)
// prefetches the first two lines of its target; blades are 64 bytes each with the base
// address first. Prefetching never faults, so nothing is checked but the blade.
TEXT ·prefetch(SB), NOSPLIT, $0-32
	MOVQ wrs+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ blades+16(FP), DI
	MOVQ nblades+24(FP), DX
	TESTQ CX, CX
	JZ   out
next:
	MOVWLZX 2(SI), AX
	CMPQ AX, DX
	JAE  skip
	SHLQ $6, AX
	MOVQ (DI)(AX*1), BX
	ADDQ 8(SI), BX
	PREFETCHT0 (BX)
	CMPL 20(SI), $64
	JLS  skip
	PREFETCHT0 64(BX)
skip:
	ADDQ $56, SI
	DECQ CX
	JNZ  next
out:
	RET
