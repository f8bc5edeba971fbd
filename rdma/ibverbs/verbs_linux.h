// What device_linux.go calls. libibverbs is loaded at run time, so that a program that was built
// with it also runs without it.
#ifndef TXNODE_VERBS_H
#define TXNODE_VERBS_H

#include <stdint.h>

struct tx_attributes {
	char firmware[64];
	uint8_t gid[16];
	uint64_t flags; // device_cap_flags_ex
	uint32_t message;
	int32_t port, gid_index, depth, entries;
	uint16_t lid;
	uint8_t ethernet, mtu, readers, starts, atomics, state;
};

struct tx_path {
	uint8_t gid[16];
	uint32_t number, from, to;
	uint16_t lid;
	uint8_t ethernet, mtu, readers, starts, timeout, retry;
	uint8_t port, gid_index, flush;
};

// struct chain of verbs.go
struct tx_chain {
	void *pair, *first, *bad;
	uint64_t error, built;
};

// All return 0 or an errno, if they return an int.
const char *tx_load(void); // NULL, or why the library cannot be loaded
int tx_open(const char *name, int port, int gid, void **context, void **pd, char *found, struct tx_attributes *a);
int tx_close(void *context, void *pd);
int tx_event(void *context, uint32_t *kind);
int tx_event_fd(void *context);
int tx_register(void *pd, uintptr_t address, uint64_t length, uint32_t rights, void **mr, uint32_t *lkey, uint32_t *rkey);
int tx_deregister(void *mr);
int tx_queue(void *context, void *pd, int depth, int events, int alone, void **cq, void **channel, void **domain,
	void **own, int *doorbell);
int tx_queue_close(void *cq, void *channel, void *domain, void *own, uint32_t taken);
int tx_channel_fd(void *channel);
uint32_t tx_drain(void *channel);
int tx_arm(void *cq);
// flush: whether it is to take FLUSHes; then, whether it does
int tx_pair(void *context, void *pd, void *cq, int depth, int *flush, void **qp, uint32_t *number, uint32_t *inline_most);
int tx_pair_close(void *qp);
int tx_connect(void *qp, const struct tx_path *to);
int tx_fail(void *qp);
// posts chains, and reaps up to n completions: how many there were, or -1
int tx_ring(struct tx_chain *chains, int count, void *cq, void *completions, int n);

#endif
