// SPDX-License-Identifier: Apache-2.0
// One end of an RC connection that exchanges messages with the other end in rounds and verifies each byte.
// For test programs in C, C++, Go and Java. Not thread-safe. Functions that can fail return 0, an errno
// value, or kEndFault for a violation, which they print: wrong bytes, or an unexpected or surplus completion.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct end;

// The data that the other end needs to connect.
struct end_name {
  uint8_t gid[16];
  uint64_t memory;
  uint32_t rkey;
  uint32_t qpn;
};

enum end_wait { kEndSpins, kEndSleeps };
enum { kEndFault = -1, kEndMessage = 4096, kEndMemory = 65536 };

// Creates an end on the device that has this address. NULL, with errno, on failure.
struct end* end_open(const char* address, enum end_wait);
struct end_name end_its_name(const struct end*);
// Sets how soon an unresponsive peer is given up, as ibv_qp_attr's `timeout` and `retry_cnt`. Call it before
// the ends are joined. The default is several seconds, as a peer may be slow on a busy machine.
void end_set_patience(struct end*, uint8_t timeout, uint8_t retries);
int end_join(struct end*, const struct end_name* other);
// Connects two ends of one process.
int end_join_each_other(struct end*, struct end*);
// Connects to the end of another process over TCP, where one side listens. Waits for the other side;
// ETIMEDOUT if it does not come.
int end_meet(struct end*, const char* address, int port, int listens);

// One round: end_first() sends a message and waits for the reply, end_second() waits and replies. Every
// eighth round the first end also writes and reads the other's memory. ECONNRESET: a completion has an error.
int end_first(struct end*, uint64_t number);
int end_second(struct end*, uint64_t number);
// Runs both sides of a round in one thread.
int end_both(struct end* first, struct end* second, uint64_t number);

// Writes to the other end's memory and reads it back, without the other end's participation.
int end_write_and_read(struct end*, uint64_t number);
// Makes all outstanding requests complete with an error. Any thread may call it.
int end_give_up(struct end*);

// Describes the first completion with an error, by ibv_wc_status_str().
const char* end_error(const struct end*);
// The number of calls that signals interrupted.
uint64_t end_interruptions(const struct end*);
// The registered memory. Only the ends' rounds may write to it.
void* end_memory(struct end*);
// Registers memory of this process and writes `bytes` from it to the other end. With `lost_first` the memory
// is unmapped while it is registered. ECONNRESET: the completion has an error.
int end_write_from(struct end*, void* from, uint32_t bytes, int lost_first);
// Maps memory for end_write_from(), far from where other threads' mappings would replace it. NULL on failure.
void* end_memory_to_lose(uint32_t bytes);

int end_close(struct end*);

#ifdef __cplusplus
}
#endif
