//go:build linux && cgo && ibverbs

#include "verbs_linux.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

// The layouts of verbs.go.
_Static_assert(sizeof(struct ibv_send_wr) == 128, "ibv_send_wr");
_Static_assert(offsetof(struct ibv_send_wr, wr_id) == 0, "wr_id");
_Static_assert(offsetof(struct ibv_send_wr, next) == 8, "next");
_Static_assert(offsetof(struct ibv_send_wr, sg_list) == 16, "sg_list");
_Static_assert(offsetof(struct ibv_send_wr, num_sge) == 24, "num_sge");
_Static_assert(offsetof(struct ibv_send_wr, opcode) == 28, "opcode");
_Static_assert(offsetof(struct ibv_send_wr, send_flags) == 32, "send_flags");
_Static_assert(offsetof(struct ibv_send_wr, wr.rdma.remote_addr) == 40, "remote_addr");
_Static_assert(offsetof(struct ibv_send_wr, wr.rdma.rkey) == 48, "rkey");
_Static_assert(offsetof(struct ibv_send_wr, wr.atomic.remote_addr) == 40, "atomic");
_Static_assert(offsetof(struct ibv_send_wr, wr.atomic.compare_add) == 48, "compare_add");
_Static_assert(offsetof(struct ibv_send_wr, wr.atomic.swap) == 56, "swap");
_Static_assert(offsetof(struct ibv_send_wr, wr.atomic.rkey) == 64, "rkey of an atomic");
_Static_assert(offsetof(struct ibv_send_wr, qp_type) + sizeof(((struct ibv_send_wr *)0)->qp_type) <= 80 &&
	offsetof(struct ibv_send_wr, bind_mw) <= 80, "where the element is");
_Static_assert(sizeof(struct ibv_sge) == 16 && offsetof(struct ibv_sge, length) == 8 &&
	offsetof(struct ibv_sge, lkey) == 12, "ibv_sge");
_Static_assert(sizeof(struct ibv_wc) == 48 && offsetof(struct ibv_wc, status) == 8, "ibv_wc");
_Static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_RDMA_READ == 4 && IBV_WR_ATOMIC_CMP_AND_SWP == 5 &&
	IBV_WR_ATOMIC_FETCH_AND_ADD == 6 && IBV_WR_FLUSH == 14, "opcodes");
_Static_assert(IBV_SEND_FENCE == 1 && IBV_SEND_SIGNALED == 2 && IBV_SEND_INLINE == 8, "flags");
_Static_assert(IBV_ACCESS_LOCAL_WRITE == 1 && IBV_ACCESS_REMOTE_WRITE == 2 && IBV_ACCESS_REMOTE_READ == 4 &&
	IBV_ACCESS_REMOTE_ATOMIC == 8 && IBV_ACCESS_FLUSH_GLOBAL == 256, "rights");
_Static_assert(IBV_WC_WR_FLUSH_ERR == 5 && IBV_WC_REM_INV_REQ_ERR == 9 && IBV_WC_REM_ACCESS_ERR == 10 &&
	IBV_WC_REM_OP_ERR == 11 && IBV_WC_RETRY_EXC_ERR == 12 && IBV_WC_RNR_RETRY_EXC_ERR == 13, "statuses");
_Static_assert(IBV_EVENT_DEVICE_FATAL == 8 && IBV_EVENT_PORT_ACTIVE == 9 && IBV_EVENT_PORT_ERR == 10, "events");
_Static_assert(sizeof(enum ibv_wc_status) == 4 && sizeof(enum ibv_wr_opcode) == 4, "enums");

#undef ibv_query_port
#undef ibv_reg_mr

// The functions of the library that are no inline ones.
static struct {
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	const char *(*get_device_name)(struct ibv_device *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	int (*get_async_event)(struct ibv_context *, struct ibv_async_event *);
	void (*ack_async_event)(struct ibv_async_event *);
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
	int (*query_port)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *);
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	int (*dereg_mr)(struct ibv_mr *);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *);
	int (*destroy_comp_channel)(struct ibv_comp_channel *);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
	int (*destroy_cq)(struct ibv_cq *);
	int (*get_cq_event)(struct ibv_comp_channel *, struct ibv_cq **, void **);
	void (*ack_cq_events)(struct ibv_cq *, unsigned int);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*destroy_qp)(struct ibv_qp *);
	struct ibv_qp_ex *(*qp_to_qp_ex)(struct ibv_qp *); // NULL in old ones
} lib;

static const char *failure;

static void load(void)
{
	void *so = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!so) {
		failure = dlerror();
		return;
	}
#define GET(name)                                            \
	do {                                                 \
		*(void **)&lib.name = dlsym(so, "ibv_" #name); \
		if (!lib.name) {                             \
			failure = "it has no ibv_" #name;    \
			return;                              \
		}                                            \
	} while (0)
	GET(get_device_list);
	GET(free_device_list);
	GET(get_device_name);
	GET(open_device);
	GET(close_device);
	GET(get_async_event);
	GET(ack_async_event);
	GET(query_device);
	GET(query_port);
	GET(query_gid);
	GET(alloc_pd);
	GET(dealloc_pd);
	GET(reg_mr);
	GET(dereg_mr);
	GET(create_comp_channel);
	GET(destroy_comp_channel);
	GET(create_cq);
	GET(destroy_cq);
	GET(get_cq_event);
	GET(ack_cq_events);
	GET(create_qp);
	GET(modify_qp);
	GET(destroy_qp);
#undef GET
	*(void **)&lib.qp_to_qp_ex = dlsym(so, "ibv_qp_to_qp_ex");
}

const char *tx_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load);
	return failure;
}

static int failed(int fallback) { return errno ? errno : fallback; }

static int nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? errno : 0;
}

static int query_port(struct ibv_context *c, int port, struct ibv_port_attr *a)
{
	struct verbs_context *v = verbs_get_ctx_op(c, query_port);
	memset(a, 0, sizeof(*a));
	if (v)
		return v->query_port(c, port, a, sizeof(*a));
	return lib.query_port(c, port, (struct _compat_ibv_port_attr *)a);
}

static int zero(const union ibv_gid *g)
{
	static const union ibv_gid none;
	return !memcmp(g, &none, sizeof(none));
}

// The GID of an Ethernet port: an IPv4 address, or else the last one that is no link-local address,
// or else the first. The table has those of RoCE v1 and v2 for each address, v2 behind v1.
static int choose_gid(struct ibv_context *c, int port, int entries)
{
	int best = 0, rank = 0;
	for (int i = 0; i < entries && i < 256; i++) {
		union ibv_gid g;
		static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
		if (lib.query_gid(c, port, i, &g) || zero(&g))
			continue;
		int r = !memcmp(g.raw, mapped, sizeof(mapped)) ? 3 : g.raw[0] != 0xfe ? 2 : 1;
		if (r > rank || (r == rank && r > 1)) {
			best = i;
			rank = r;
		}
	}
	return best;
}

// Whether a port can be taken: the one that was asked for, or the first that is active.
static int try_port(struct ibv_context *c, int port, int gid, int asked, struct tx_attributes *a)
{
	struct ibv_port_attr p;
	if (query_port(c, port, &p) || (!asked && p.state != IBV_PORT_ACTIVE))
		return 0;
	memset(a, 0, sizeof(*a));
	a->port = port;
	a->ethernet = p.link_layer == IBV_LINK_LAYER_ETHERNET;
	a->lid = p.lid;
	a->mtu = p.active_mtu;
	a->state = p.state;
	a->message = p.max_msg_sz;
	a->gid_index = gid >= 0 ? gid : a->ethernet ? choose_gid(c, port, p.gid_tbl_len) : 0;
	union ibv_gid g;
	if (!lib.query_gid(c, port, a->gid_index, &g))
		memcpy(a->gid, g.raw, sizeof(a->gid));
	return 1;
}

static uint8_t small(int n) { return n > 128 ? 128 : n < 1 ? 1 : n; }

static int describe(struct ibv_context *c, struct tx_attributes *a)
{
	struct ibv_device_attr d;
	int err = lib.query_device(c, &d);
	if (err)
		return err;
	memcpy(a->firmware, d.fw_ver, sizeof(a->firmware) - 1);
	a->atomics = d.atomic_cap != IBV_ATOMIC_NONE;
	a->readers = small(d.max_qp_rd_atom);
	a->starts = small(d.max_qp_init_rd_atom);
	a->depth = d.max_qp_wr;
	a->entries = d.max_cqe;
	a->flags = d.device_cap_flags;
	struct verbs_context *v = verbs_get_ctx_op(c, query_device_ex);
	struct ibv_device_attr_ex x;
	memset(&x, 0, sizeof(x));
	if (v && !v->query_device_ex(c, NULL, &x, sizeof(x)))
		a->flags |= x.device_cap_flags_ex;
	return 0;
}

int tx_open(const char *name, int port, int gid, void **context, void **pd, char *found, struct tx_attributes *a)
{
	int n = 0, err = ENODEV;
	struct ibv_device **all = lib.get_device_list(&n);
	if (!all)
		return failed(ENOSYS);
	for (int i = 0; i < n; i++) {
		const char *is = lib.get_device_name(all[i]);
		if (*name && strcmp(name, is))
			continue;
		errno = 0;
		struct ibv_context *c = lib.open_device(all[i]);
		if (!c) {
			err = failed(ENODEV);
			continue;
		}
		int asked = port || *name, took = 0;
		for (int k = port ? port : 1; !took && k <= (port ? port : 255); k++) {
			struct ibv_port_attr p;
			if (query_port(c, k, &p))
				break;
			took = try_port(c, k, gid, port != 0, a);
		}
		if (!took && asked && !port)
			took = try_port(c, 1, gid, 1, a);
		if (!took) {
			err = ENODEV;
			lib.close_device(c);
			continue;
		}
		err = describe(c, a);
		if (!err && !(*pd = lib.alloc_pd(c)))
			err = failed(ENOMEM);
		if (!err)
			err = nonblocking(c->async_fd);
		if (err) {
			lib.close_device(c);
			continue;
		}
		*context = c;
		strncpy(found, is, 63);
		break;
	}
	lib.free_device_list(all);
	return err;
}

int tx_close(void *context, void *pd)
{
	int a = lib.dealloc_pd(pd), b = lib.close_device(context);
	return a ? a : b;
}

int tx_event_fd(void *context) { return ((struct ibv_context *)context)->async_fd; }

int tx_event(void *context, uint32_t *kind)
{
	struct ibv_async_event e;
	errno = 0;
	if (lib.get_async_event(context, &e))
		return failed(EAGAIN);
	*kind = e.event_type;
	lib.ack_async_event(&e); // else destroying what it speaks of waits for ever
	return 0;
}

int tx_register(void *pd, uintptr_t address, uint64_t length, uint32_t rights, void **mr, uint32_t *lkey, uint32_t *rkey)
{
	errno = 0;
	struct ibv_mr *m = lib.reg_mr(pd, (void *)address, length, rights);
	if (!m)
		return failed(ENOMEM);
	*mr = m;
	*lkey = m->lkey;
	*rkey = m->rkey;
	return 0;
}

int tx_deregister(void *mr) { return lib.dereg_mr(mr); }

int tx_queue(void *context, void *pd, int depth, int events, int alone, void **cq, void **channel, void **domain,
	void **own, int *doorbell)
{
	errno = 0;
	*channel = *domain = *own = NULL;
	*doorbell = 0;
	if (events) {
		struct ibv_comp_channel *ch = lib.create_comp_channel(context);
		if (!ch)
			return failed(ENOMEM);
		*channel = ch;
		int err = nonblocking(ch->fd);
		if (err) {
			lib.destroy_comp_channel(ch);
			return err;
		}
	}
	*cq = lib.create_cq(context, depth, NULL, *channel, 0);
	if (!*cq) {
		int err = failed(ENOMEM);
		if (*channel)
			lib.destroy_comp_channel(*channel);
		return err;
	}
	if (!alone)
		return 0;
	// A thread domain is a doorbell register that nobody else has; a device need not have them.
	struct ibv_td_init_attr t = {0};
	errno = 0;
	struct ibv_td *td = ibv_alloc_td(context, &t);
	if (!td) {
		*doorbell = failed(EOPNOTSUPP);
		return 0;
	}
	struct ibv_parent_domain_init_attr d = {.pd = pd, .td = td};
	*own = ibv_alloc_parent_domain(context, &d);
	if (!*own) {
		*doorbell = failed(EOPNOTSUPP);
		ibv_dealloc_td(td);
		return 0;
	}
	*domain = td;
	return 0;
}

int tx_queue_close(void *cq, void *channel, void *domain, void *own, uint32_t taken)
{
	if (taken)
		lib.ack_cq_events(cq, taken);
	int err = lib.destroy_cq(cq), e;
	if (channel && (e = lib.destroy_comp_channel(channel)) && !err)
		err = e;
	if (own && (e = lib.dealloc_pd(own)) && !err)
		err = e;
	if (domain && (e = ibv_dealloc_td(domain)) && !err)
		err = e;
	return err;
}

int tx_channel_fd(void *channel) { return ((struct ibv_comp_channel *)channel)->fd; }

uint32_t tx_drain(void *channel)
{
	uint32_t n = 0;
	struct ibv_cq *cq;
	void *context;
	while (!lib.get_cq_event(channel, &cq, &context))
		n++;
	return n;
}

int tx_arm(void *cq) { return ibv_req_notify_cq(cq, 0); }

int tx_pair(void *context, void *pd, void *cq, int depth, int *flush, void **qp, uint32_t *number, uint32_t *inline_most)
{
	*flush = *flush && lib.qp_to_qp_ex;
	for (uint32_t most = 128;; most /= 2) { // as much inline as the device has room for
		struct ibv_qp_init_attr_ex a = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = depth, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
				.max_inline_data = most},
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			.pd = pd,
			.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
				IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_FLUSH,
		};
		errno = 0;
		struct ibv_qp *q = *flush ? ibv_create_qp_ex(context, &a)
					  : lib.create_qp(pd, (struct ibv_qp_init_attr *)&a); // its first members
		if (!q && most > 8)
			continue;
		if (!q && *flush) {
			*flush = 0;
			most = 256;
			continue;
		}
		if (!q)
			return failed(ENOMEM);
		*qp = q;
		*number = q->qp_num;
		*inline_most = a.cap.max_inline_data < 256 ? a.cap.max_inline_data : 256;
		return 0;
	}
}

int tx_pair_close(void *qp) { return lib.destroy_qp(qp); }

int tx_fail(void *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	return lib.modify_qp(qp, &a, IBV_QP_STATE);
}

int tx_connect(void *qp, const struct tx_path *to)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = to->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
			(to->flush ? IBV_ACCESS_FLUSH_GLOBAL : 0),
	};
	int err = lib.modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (err)
		return err;
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = to->mtu,
		.dest_qp_num = to->number,
		.rq_psn = to->to,
		.max_dest_rd_atomic = to->readers,
		.min_rnr_timer = 12,
		.ah_attr = {.port_num = to->port, .dlid = to->lid},
	};
	if (to->ethernet) {
		receive.ah_attr.is_global = 1;
		receive.ah_attr.grh.hop_limit = 64;
		receive.ah_attr.grh.sgid_index = to->gid_index;
		memcpy(receive.ah_attr.grh.dgid.raw, to->gid, sizeof(to->gid));
	}
	err = lib.modify_qp(qp, &receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (err)
		return err;
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS,
		.timeout = to->timeout,
		.retry_cnt = to->retry,
		.rnr_retry = to->retry,
		.sq_psn = to->from,
		.max_rd_atomic = to->starts,
	};
	return lib.modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

// build posts a chain request by request, for those that ibv_post_send does not know.
static int build(struct ibv_qp *qp, struct ibv_send_wr *w)
{
	struct ibv_qp_ex *x = lib.qp_to_qp_ex(qp);
	ibv_wr_start(x);
	for (; w; w = w->next) {
		x->wr_id = w->wr_id;
		x->wr_flags = w->send_flags & ~IBV_SEND_INLINE;
		switch ((int)w->opcode) {
		case IBV_WR_RDMA_WRITE:
			ibv_wr_rdma_write(x, w->wr.rdma.rkey, w->wr.rdma.remote_addr);
			break;
		case IBV_WR_RDMA_READ:
			ibv_wr_rdma_read(x, w->wr.rdma.rkey, w->wr.rdma.remote_addr);
			break;
		case IBV_WR_ATOMIC_CMP_AND_SWP:
			ibv_wr_atomic_cmp_swp(x, w->wr.atomic.rkey, w->wr.atomic.remote_addr, w->wr.atomic.compare_add,
				w->wr.atomic.swap);
			break;
		case IBV_WR_ATOMIC_FETCH_AND_ADD:
			ibv_wr_atomic_fetch_add(x, w->wr.atomic.rkey, w->wr.atomic.remote_addr, w->wr.atomic.compare_add);
			break;
		case IBV_WR_FLUSH:
			ibv_wr_flush(x, w->wr.rdma.rkey, w->wr.rdma.remote_addr, w->wr.atomic.swap, IBV_FLUSH_GLOBAL,
				IBV_FLUSH_RANGE);
			continue; // it has no buffer
		}
		// Nothing is inline: librxe 56 then forgets to tell the kernel that it is.
		ibv_wr_set_sge(x, w->sg_list->lkey, w->sg_list->addr, w->sg_list->length);
	}
	return ibv_wr_complete(x);
}

int tx_ring(struct tx_chain *chains, int count, void *cq, void *completions, int n)
{
	for (int i = 0; i < count; i++) {
		struct ibv_send_wr *bad = NULL;
		int err = chains[i].built ? build(chains[i].pair, chains[i].first)
					  : ibv_post_send(chains[i].pair, chains[i].first, &bad);
		if (err) {
			chains[i].error = err > 0 ? err : -err;
			chains[i].bad = bad;
		}
	}
	return ibv_poll_cq(cq, n, completions);
}
