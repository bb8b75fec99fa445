// SPDX-License-Identifier: Apache-2.0
// One end of an RC connection that does rounds with the other and verifies each byte: for programs in C, C++,
// Go and Java. One thread at a time. What can fail answers 0, an errno value, or less than 0 for what must
// never be (it is printed): other bytes, a completion too many, another one than expected.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct end;

// What the other end must know.
struct end_name {
  uint8_t gid[16];
  uint64_t memory;
  uint32_t rkey;
  uint32_t qpn;
};

enum end_wait { kEndSpins, kEndSleeps };
enum { kEndFault = -1, kEndMessage = 4096, kEndMemory = 65536 };

// On the device that has this address. NULL: errno.
struct end* end_open(const char* address, enum end_wait);
struct end_name end_its_name(const struct end*);
// How soon a peer that does not answer is given up: by the verbs' `timeout` and `retry_cnt`, before the ends
// are joined. By default after some seconds, as on a busy machine a peer may be late.
void end_set_patience(struct end*, uint8_t timeout, uint8_t retries);
int end_join(struct end*, const struct end_name* other);
// Two ends of one process.
int end_join_each_other(struct end*, struct end*);
// With another process, whose end listens at a TCP port; it is waited for. ETIMEDOUT: it does not come.
int end_meet(struct end*, const char* address, int port, int listens);

// The first end of a round sends a message and waits for the answer; the other waits and answers. Every
// eighth time the first writes and reads the other's memory, too. ECONNRESET: a completion has an error.
int end_first(struct end*, uint64_t number);
int end_second(struct end*, uint64_t number);
// Both, in one thread.
int end_both(struct end* first, struct end* second, uint64_t number);

// Without the other end's doing: writes to its memory and reads it back.
int end_write_and_read(struct end*, uint64_t number);
// All that is under way completes with an error. Any thread.
int end_give_up(struct end*);

// Of the first completion with an error, in the verbs' words.
const char* end_error(const struct end*);
// How many calls were interrupted by signals.
uint64_t end_interruptions(const struct end*);
// The registered memory, which nobody but the ends' own rounds may write to.
void* end_memory(struct end*);
// An operation of its own: writes `bytes` from an address of this process that is registered here, and gives
// the status of the completion. For memory that is lost while it is registered.
int end_write_from(struct end*, void* from, uint32_t bytes, int lost_first);
// Memory for that, far from where other threads' mappings would take its place. NULL: there is none.
void* end_memory_to_lose(uint32_t bytes);

int end_close(struct end*);

#ifdef __cplusplus
}
#endif
