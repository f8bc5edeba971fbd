#include "go_asm.h"
#include "textflag.h"

// func exec(wrs *rdma.WR, n, ahead int, l *head) int
//
// SI request, CX requests left, DI queue pairs, R8 their number, R9 arena,
// R10 its size, AX queue pair, BX remote address, DX length, R12 local address.
TEXT ·exec(SB), NOSPLIT, $0-40
	MOVQ l+24(FP), AX
	MOVQ head_announced(AX), BX
	MOVQ head_qps(AX), DI
	MOVQ head_blades(AX), R8
	MOVQ head_arena(AX), R9
	MOVQ head_size(AX), R10
	INCQ (BX)
	MOVQ wrs+0(FP), SI
	MOVQ ahead+16(FP), CX
	SUBQ $1, CX
	JLE  run

	// Prefetch, but for a single request: it would only be in its own way.
	ADDQ $1, CX

touch:
	MOVWLZX const_wrBlade(SI), AX
	CMPQ    AX, R8
	JAE     touched
	SHLQ    $6, AX
	MOVQ    queuePair_base(DI)(AX*1), BX
	ADDQ    const_wrOff(SI), BX
	CMPB    const_wrOp(SI), $const_opRead
	JNE     own
	PREFETCHT0 (BX)
	CMPL    const_wrLen(SI), $64
	JLS     touched
	PREFETCHT0 64(BX)

touched:
	ADDQ $const_wrSize, SI
	DECQ CX
	JNZ  touch
	MOVQ wrs+0(FP), SI

run:
	MOVQ n+8(FP), CX

next:
	MOVQ l+24(FP), R11
	MOVQ CX, head_left(R11)

	// The checks of (*Lane).check.
	MOVWLZX const_wrBlade(SI), AX
	MOVQ    const_wrOff(SI), BX
	MOVL    const_wrLen(SI), DX
	CMPQ    AX, R8
	JAE     stop
	SHLQ    $6, AX
	ADDQ    DI, AX
	MOVQ    queuePair_size(AX), R11
	SUBQ    BX, R11
	JB      stop
	CMPQ    R11, DX
	JB      stop
	MOVQ    queuePair_key(AX), R11
	MOVL    const_wrKey(SI), R13
	CMPQ    R13, (R11)
	JNE     stop
	CMPB    queuePair_status(AX), $0
	JNE     stop
	ADDQ    queuePair_base(AX), BX
	MOVBLZX const_wrOp(SI), R11
	CMPL    R11, $const_opWrite
	JA      atomic

	MOVL    const_wrLocal(SI), R12
	LEAQ    (R12)(DX*1), R13
	CMPQ    R10, R13
	JB      stop
	ADDQ    R9, R12
	MOVQ    BX, R13
	ORQ     R12, R13
	ORQ     DX, R13
	TESTQ   $7, R13
	JNZ     stop
	CMPL    R11, $const_opRead
	JNE     write

	// READ. Sixteen bytes at a time where the line is aligned so.
	TESTQ $15, BX
	JNZ   readWords
	CMPL  DX, $64
	JNE   readLines
	MOVOU (BX), X0
	MOVOU 16(BX), X1
	MOVOU 32(BX), X2
	MOVOU 48(BX), X3
	MOVOU X0, (R12)
	MOVOU X1, 16(R12)
	MOVOU X2, 32(R12)
	MOVOU X3, 48(R12)

done:
	ADDQ $const_wrSize, SI
	DECQ CX
	JNZ  next

stop:
	MOVQ l+24(FP), BX
	MOVQ head_announced(BX), BX
	INCQ (BX)
	MOVQ n+8(FP), AX
	SUBQ CX, AX
	MOVQ AX, ret+32(FP)
	RET

readLines:
	CMPL DX, $const_execMax
	JA   stop
	SUBQ $64, DX
	JB   readTail

readLine:
	MOVOU (BX), X0
	MOVOU 16(BX), X1
	MOVOU 32(BX), X2
	MOVOU 48(BX), X3
	MOVOU X0, (R12)
	MOVOU X1, 16(R12)
	MOVOU X2, 32(R12)
	MOVOU X3, 48(R12)
	ADDQ  $64, BX
	ADDQ  $64, R12
	SUBQ  $64, DX
	JAE   readLine

readTail:
	ADDQ $64, DX
	JZ   done

readWords:
	CMPL DX, $const_execMax
	JA   stop
	SUBQ $8, DX
	JB   done

readWord:
	MOVQ (BX), R11
	MOVQ R11, (R12)
	ADDQ $8, BX
	ADDQ $8, R12
	SUBQ $8, DX
	JAE  readWord
	JMP  done

own:
	BYTE $0x0f; BYTE $0x0d; BYTE $0x0b             // PREFETCHW (BX)
	CMPL const_wrLen(SI), $64
	JLS  touched
	BYTE $0x0f; BYTE $0x0d; BYTE $0x4b; BYTE $0x40 // PREFETCHW 64(BX)
	JMP  touched

	// WRITE. What is written was mostly composed just now, word by word: wider
	// loads would have to wait until those stores have left the store buffer.
write:
	CMPB queuePair_readOnly(AX), $0
	JNE  stop
	CMPL DX, $const_execMax
	JA   stop
	SUBQ $64, DX
	JB   writeTail

writeLine:
	MOVQ (R12), R11
	MOVQ 8(R12), R13
	MOVQ R11, (BX)
	MOVQ R13, 8(BX)
	MOVQ 16(R12), R11
	MOVQ 24(R12), R13
	MOVQ R11, 16(BX)
	MOVQ R13, 24(BX)
	MOVQ 32(R12), R11
	MOVQ 40(R12), R13
	MOVQ R11, 32(BX)
	MOVQ R13, 40(BX)
	MOVQ 48(R12), R11
	MOVQ 56(R12), R13
	MOVQ R11, 48(BX)
	MOVQ R13, 56(BX)
	ADDQ $64, BX
	ADDQ $64, R12
	SUBQ $64, DX
	JAE  writeLine

writeTail:
	ADDQ $64, DX
	JZ   done

writeWord:
	MOVQ (R12), R11
	MOVQ R11, (BX)
	ADDQ $8, BX
	ADDQ $8, R12
	SUBQ $8, DX
	JNZ  writeWord
	JMP  done

atomic:
	CMPL  R11, $const_opMaskedCAS
	JA    stop
	CMPB  queuePair_readOnly(AX), $0
	JNE   stop
	CMPL  DX, $8
	JNE   stop
	TESTQ $7, BX
	JNZ   stop
	CMPL  R11, $const_opCAS
	JNE   faa
	MOVQ  const_wrCmp(SI), AX
	MOVQ  const_wrSwap(SI), R11
	LOCK
	CMPXCHGQ R11, (BX)
	MOVQ  AX, const_wrResult(SI)
	JMP   done

faa:
	CMPL  R11, $const_opFAA
	JNE   masked
	MOVQ  const_wrSwap(SI), R11
	LOCK
	XADDQ R11, (BX)
	MOVQ  R11, const_wrResult(SI)
	JMP   done

	// The masks are in the arena: compare, then swap.
masked:
	MOVL const_wrLocal(SI), R12
	LEAQ 16(R12), R13
	CMPQ R10, R13
	JB   stop
	ADDQ R9, R12
	MOVQ (R12), R13
	MOVQ 8(R12), R12

again:
	MOVQ  (BX), AX
	MOVQ  AX, R11
	XORQ  const_wrCmp(SI), R11
	TESTQ R13, R11
	JNZ   result
	MOVQ  AX, R11
	XORQ  const_wrSwap(SI), R11
	ANDQ  R12, R11
	XORQ  AX, R11
	LOCK
	CMPXCHGQ R11, (BX)
	JNE   again

result:
	MOVQ AX, const_wrResult(SI)
	JMP  done

// func copyWords(dst, src unsafe.Pointer, n uintptr)
//
// When both sides are 16-byte aligned, sixteen bytes at a time, where those are
// single accesses.
TEXT ·copyWords(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ SI, AX
	ORQ  DI, AX
	TESTQ $15, AX
	JNZ  words
	CMPB ·wide(SB), $0
	JEQ  words
	SUBQ $64, CX
	JB   tail

line:
	MOVOU (SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3
	MOVOU X0, (DI)
	MOVOU X1, 16(DI)
	MOVOU X2, 32(DI)
	MOVOU X3, 48(DI)
	ADDQ  $64, SI
	ADDQ  $64, DI
	SUBQ  $64, CX
	JAE   line

tail:
	ADDQ $64, CX

words:
	SUBQ $8, CX
	JB   end

word:
	MOVQ (SI), AX
	MOVQ AX, (DI)
	ADDQ $8, SI
	ADDQ $8, DI
	SUBQ $8, CX
	JAE  word

end:
	RET
