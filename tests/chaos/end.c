// SPDX-License-Identifier: Apache-2.0
#include "chaos/end.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/memory_apart.h"
#include "chaos/find_gid.h"

enum { kDepth = 8, kPatienceS = 20, kReceives = 0, kSends = 32768, kWindow = 49152, kWindowBytes = 8192 };
enum { kReceiveDone = 100, kSendDone = 200 };  // wr_id

struct end {
  struct ibv_context* context;
  struct ibv_comp_channel* channel;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_mr* mr;
  struct ibv_qp* qp;
  union ibv_gid gid;
  int gid_index;
  char* memory;
  enum end_wait wait;
  uint8_t timeout;
  uint8_t retries;
  struct end_name other;
  uint32_t received;  // messages that have come and were not waited for yet
  uint64_t next_receive;
  uint32_t sent;  // completions of requests, likewise
  uint64_t interruptions;
  enum ibv_wc_status error;
};

static int open_device(struct end* end, const char* address) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  if (list == NULL) return errno;
  end->gid_index = -1;
  for (int i = 0; i < count && end->gid_index < 0; ++i) {
    end->context = ibv_open_device(list[i]);
    if (end->context == NULL) continue;
    end->gid_index = find_gid(end->context, address, &end->gid);
    if (end->gid_index < 0) {
      ibv_close_device(end->context);
      end->context = NULL;
    }
  }
  ibv_free_device_list(list);
  return end->gid_index >= 0 ? 0 : ENODEV;
}

static int make_objects(struct end* end) {
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  end->memory = mmap(NULL, kEndMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (end->memory == MAP_FAILED) return end->memory = NULL, errno;
  if ((end->pd = ibv_alloc_pd(end->context)) == NULL) return errno;
  if ((end->channel = ibv_create_comp_channel(end->context)) == NULL) return errno;
  if ((end->cq = ibv_create_cq(end->context, 4 * kDepth, NULL, end->channel, 0)) == NULL) return errno;
  if ((end->mr = ibv_reg_mr(end->pd, end->memory, kEndMemory, access)) == NULL) return errno;
  struct ibv_qp_init_attr wanted = {
      .send_cq = end->cq,
      .recv_cq = end->cq,
      .cap = {.max_send_wr = kDepth, .max_recv_wr = kDepth, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1};
  return (end->qp = ibv_create_qp(end->pd, &wanted)) == NULL ? errno : 0;
}

struct end* end_open(const char* address, enum end_wait wait) {
  struct end* end = calloc(1, sizeof *end);
  if (end == NULL) return NULL;
  end->wait = wait;
  end_set_patience(end, 17, 7);
  int error = open_device(end, address);
  if (error == 0) error = make_objects(end);
  if (error == 0) return end;
  end_close(end);
  errno = error != 0 ? error : EIO;
  return NULL;
}

struct end_name end_its_name(const struct end* end) {
  struct end_name name = {.memory = (uintptr_t)end->memory, .rkey = end->mr->rkey, .qpn = end->qp->qp_num};
  memcpy(name.gid, end->gid.raw, sizeof name.gid);
  return name;
}

static int post_receive(struct end* end, uint64_t number) {
  struct ibv_sge piece = {(uintptr_t)end->memory + kReceives + number % kDepth * kEndMessage, kEndMessage,
                          end->mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = kReceiveDone, .sg_list = &piece, .num_sge = 1};
  struct ibv_recv_wr* bad = NULL;
  return ibv_post_recv(end->qp, &wr, &bad);
}

void end_set_patience(struct end* end, uint8_t timeout, uint8_t retries) {
  end->timeout = timeout;
  end->retries = retries;
}

int end_join(struct end* end, const struct end_name* other) {
  struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT,
                           .port_num = 1,
                           .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  int error =
      ibv_modify_qp(end->qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  for (uint64_t i = 0; i < kDepth && error == 0; ++i) error = post_receive(end, i);
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = IBV_MTU_1024;
  to.dest_qp_num = other->qpn;
  to.max_dest_rd_atomic = 4;
  to.min_rnr_timer = 12;
  to.ah_attr.is_global = 1;
  to.ah_attr.port_num = 1;
  memcpy(to.ah_attr.grh.dgid.raw, other->gid, 16);
  to.ah_attr.grh.sgid_index = (uint8_t)end->gid_index;
  to.ah_attr.grh.hop_limit = 64;
  if (error == 0)
    error = ibv_modify_qp(end->qp, &to,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  to.qp_state = IBV_QPS_RTS;
  to.timeout = end->timeout;
  to.retry_cnt = end->retries;
  to.rnr_retry = 7;
  to.max_rd_atomic = 4;
  if (error == 0)
    error = ibv_modify_qp(end->qp, &to,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  end->other = *other;
  return error;
}

int end_join_each_other(struct end* first, struct end* second) {
  const struct end_name names[2] = {end_its_name(first), end_its_name(second)};
  const int error = end_join(first, &names[1]);
  return error != 0 ? error : end_join(second, &names[0]);
}

// ---- another process

static time_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec;
}

static int transfer(int socket, void* data, size_t bytes, int sends) {
  for (size_t done = 0; done < bytes;) {
    char* at = (char*)data + done;
    const ssize_t some =
        sends ? send(socket, at, bytes - done, MSG_NOSIGNAL) : recv(socket, at, bytes - done, 0);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) return some < 0 ? errno : ECONNRESET;
    done += (size_t)some;
  }
  return 0;
}

static int listening_connection(const struct sockaddr_in* at) {
  const int yes = 1;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int made = -1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(listener, (const struct sockaddr*)at, sizeof *at) == 0 && listen(listener, 1) == 0) {
    do made = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    while (made < 0 && errno == EINTR);
  }
  const int error = errno;
  close(listener);
  errno = error;
  return made;
}

// Tries repeatedly: the other end may not listen yet.
static int calling_connection(const struct sockaddr_in* at) {
  for (const time_t begin = now(); now() - begin < kPatienceS;) {
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(made, (const struct sockaddr*)at, sizeof *at) == 0) return made;
    close(made);
    usleep(10000);
  }
  errno = ETIMEDOUT;
  return -1;
}

int end_meet(struct end* end, const char* address, int port, int listens) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  struct end_name own = end_its_name(end);
  struct end_name other;
  char done = 0;
  inet_pton(AF_INET, address, &at.sin_addr);
  const int socket = listens ? listening_connection(&at) : calling_connection(&at);
  if (socket < 0) return errno;
  int error = transfer(socket, &own, sizeof own, 1);
  if (error == 0) error = transfer(socket, &other, sizeof other, 0);
  if (error == 0) error = end_join(end, &other);
  // Each waits until the other's receives are posted.
  if (error == 0) error = transfer(socket, &done, 1, 1);
  if (error == 0) error = transfer(socket, &done, 1, 0);
  close(socket);
  return error;
}

// ---- rounds

static int fault(const char* what, uint64_t number) {
  fprintf(stderr, "fault: round %llu: %s\n", (unsigned long long)number, what);
  return kEndFault;
}

static char byte_of(uint64_t number, uint32_t at) {
  return (char)(number * 31 + at * 7 + (at >> 8));
}

static void fill(char* to, uint32_t bytes, uint64_t number) {
  for (uint32_t i = 0; i < bytes; ++i) to[i] = byte_of(number, i);
}

static int is_filled(const char* from, uint32_t bytes, uint64_t number) {
  for (uint32_t i = 0; i < bytes; ++i) {
    if (from[i] != byte_of(number, i)) return 0;
  }
  return 1;
}

static uint32_t length_of(uint64_t number) {
  return 1 + (uint32_t)(number * 2654435761u % kEndMessage);
}

// Returns 0 if some have come or none is there.
static int take_completions(struct end* end) {
  struct ibv_wc found[4];
  const int count = ibv_poll_cq(end->cq, 4, found);
  if (count < 0) return fault("the queue cannot be polled", 0);
  for (int i = 0; i < count; ++i) {
    if (found[i].status != IBV_WC_SUCCESS) {
      if (end->error == IBV_WC_SUCCESS) end->error = found[i].status;
      return ECONNRESET;
    }
    if (found[i].wr_id == kReceiveDone) {
      const uint64_t number = end->next_receive + end->received++;
      if (found[i].byte_len > kEndMessage) return fault("a message is too long", number);
    } else {
      ++end->sent;
    }
  }
  return 0;
}

static int sleep_for_event(struct end* end) {
  struct ibv_cq* queue = NULL;
  void* context = NULL;
  int error = ibv_req_notify_cq(end->cq, 0);
  if (error == 0) error = take_completions(end);
  if (error != 0 || end->received > 0 || end->sent > 0) return error;
  while (ibv_get_cq_event(end->channel, &queue, &context) != 0) {
    if (errno != EINTR) return errno;
    ++end->interruptions;
  }
  if (queue != end->cq) return fault("an event of another queue", 0);
  ibv_ack_cq_events(queue, 1);
  return 0;
}

// Waits until `*what` is not zero, and decrements it.
static int await(struct end* end, uint32_t* what) {
  const time_t begin = now();
  while (*what == 0) {
    int error = take_completions(end);
    if (error == 0 && *what == 0 && end->wait == kEndSleeps) error = sleep_for_event(end);
    if (error != 0) return error;
    if (now() - begin > kPatienceS) return ETIMEDOUT;
  }
  --*what;
  return 0;
}

static int post(struct end* end, enum ibv_wr_opcode opcode, uint32_t offset, uint32_t bytes) {
  struct ibv_sge piece = {(uintptr_t)end->memory + offset, bytes, end->mr->lkey};
  struct ibv_send_wr wr = {.wr_id = kSendDone, .opcode = opcode, .sg_list = &piece, .num_sge = 1};
  struct ibv_send_wr* bad = NULL;
  wr.wr.rdma.remote_addr = end->other.memory + kWindow;
  wr.wr.rdma.rkey = end->other.rkey;
  return ibv_post_send(end->qp, &wr, &bad);
}

static int send_message(struct end* end, uint64_t number) {
  fill(end->memory + kSends, length_of(number), number);
  const int error = post(end, IBV_WR_SEND, kSends, length_of(number));
  return error != 0 ? error : await(end, &end->sent);
}

static int receive_message(struct end* end, uint64_t number) {
  int error = await(end, &end->received);
  if (error != 0) return error;
  const uint64_t at = end->next_receive++;
  char* message = end->memory + kReceives + at % kDepth * kEndMessage;
  if (!is_filled(message, length_of(number), number)) return fault("a message with other bytes", number);
  memset(message, 0, kEndMessage);
  return post_receive(end, at);
}

int end_write_and_read(struct end* end, uint64_t number) {
  fill(end->memory + kSends, kWindowBytes, ~number);
  int error = post(end, IBV_WR_RDMA_WRITE, kSends, kWindowBytes);
  if (error == 0) error = await(end, &end->sent);
  if (error != 0) return error;
  memset(end->memory + kSends, 0, kWindowBytes);
  error = post(end, IBV_WR_RDMA_READ, kSends, kWindowBytes);
  if (error == 0) error = await(end, &end->sent);
  if (error != 0) return error;
  return is_filled(end->memory + kSends, kWindowBytes, ~number) ? 0 : fault("READ finds other bytes", number);
}

int end_first(struct end* end, uint64_t number) {
  int error = number % 8 == 7 ? end_write_and_read(end, number) : 0;
  if (error == 0) error = send_message(end, 2 * number);
  return error != 0 ? error : receive_message(end, 2 * number + 1);
}

int end_second(struct end* end, uint64_t number) {
  const int error = receive_message(end, 2 * number);
  return error != 0 ? error : send_message(end, 2 * number + 1);
}

int end_both(struct end* first, struct end* second, uint64_t number) {
  int error = number % 8 == 7 ? end_write_and_read(first, number) : 0;
  if (error == 0) error = send_message(first, 2 * number);
  if (error == 0) error = end_second(second, number);
  return error != 0 ? error : receive_message(first, 2 * number + 1);
}

int end_give_up(struct end* end) {
  struct ibv_qp_attr to = {.qp_state = IBV_QPS_ERR};
  return ibv_modify_qp(end->qp, &to, IBV_QP_STATE);
}

const char* end_error(const struct end* end) {
  return ibv_wc_status_str(end->error);
}

uint64_t end_interruptions(const struct end* end) {
  return end->interruptions;
}

void* end_memory(struct end* end) {
  return end->memory;
}

int end_write_from(struct end* end, void* from, uint32_t bytes, int lost_first) {
  struct ibv_mr* mr = ibv_reg_mr(end->pd, from, bytes, IBV_ACCESS_LOCAL_WRITE);
  if (mr == NULL) return errno;
  if (lost_first && munmap(from, bytes) != 0) return errno;
  struct ibv_sge piece = {(uintptr_t)from, bytes, mr->lkey};
  struct ibv_send_wr wr = {.wr_id = kSendDone, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &piece, .num_sge = 1};
  struct ibv_send_wr* bad = NULL;
  wr.wr.rdma.remote_addr = end->other.memory + kWindow;
  wr.wr.rdma.rkey = end->other.rkey;
  int error = ibv_post_send(end->qp, &wr, &bad);
  if (error == 0) error = await(end, &end->sent);
  const int given_back = ibv_dereg_mr(mr);
  return error != 0 ? error : given_back;
}

void* end_memory_to_lose(uint32_t bytes) {
  void* at = map_apart(bytes);
  return at != MAP_FAILED ? at : NULL;
}

// Destroys everything that exists, whatever fails. Returns the first failure.
int end_close(struct end* end) {
  int first = 0;
  int error = end->qp != NULL ? ibv_destroy_qp(end->qp) : 0;
  first = first != 0 ? first : error;
  error = end->cq != NULL ? ibv_destroy_cq(end->cq) : 0;
  first = first != 0 ? first : error;
  error = end->channel != NULL ? ibv_destroy_comp_channel(end->channel) : 0;
  first = first != 0 ? first : error;
  error = end->mr != NULL ? ibv_dereg_mr(end->mr) : 0;
  first = first != 0 ? first : error;
  error = end->pd != NULL ? ibv_dealloc_pd(end->pd) : 0;
  first = first != 0 ? first : error;
  error = end->context != NULL ? ibv_close_device(end->context) : 0;
  first = first != 0 ? first : error;
  if (end->memory != NULL) munmap(end->memory, kEndMemory);
  free(end);
  return first;
}
