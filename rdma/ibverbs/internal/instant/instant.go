//go:build linux && cgo && ibverbs

package instant

/*
#include <infiniband/verbs.h>
#include <stdlib.h>

struct instant {
	struct ibv_context context;
	struct ibv_qp qp;
	struct ibv_cq cq;
	uint64_t done[64]; // of requests that were signalled
	unsigned head, tail;
};

static int post(struct ibv_qp *qp, struct ibv_send_wr *w, struct ibv_send_wr **bad)
{
	struct instant *x = qp->qp_context;
	(void)bad;
	for (; w; w = w->next)
		if (w->send_flags & IBV_SEND_SIGNALED)
			x->done[x->tail++ % 64] = w->wr_id;
	return 0;
}

static int poll(struct ibv_cq *cq, int most, struct ibv_wc *out)
{
	struct instant *x = cq->cq_context;
	int n = 0;
	for (; n < most && x->head != x->tail; n++) {
		out[n].wr_id = x->done[x->head++ % 64];
		out[n].status = IBV_WC_SUCCESS;
	}
	return n;
}

static struct instant *begin(void)
{
	struct instant *x = calloc(1, sizeof(*x));
	x->context.ops.post_send = post;
	x->context.ops.poll_cq = poll;
	x->qp.context = x->cq.context = &x->context;
	x->qp.qp_context = x->cq.cq_context = x;
	return x;
}
*/
import "C"

import "unsafe"

// New returns a queue pair and its completion queue, as libibverbs has them. They stay until the end of
// the process.
func New() (pair, queue unsafe.Pointer) {
	x := C.begin()
	return unsafe.Pointer(&x.qp), unsafe.Pointer(&x.cq)
}
