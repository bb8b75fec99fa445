// SPDX-License-Identifier: Apache-2.0
// sanitized_pingpong [FAULT]: two processes exchange messages over an RC connection; in each a second thread
// polls the CQ. It is compiled with a sanitizer, and in the end makes FAULT, which the sanitizer has to find:
// heap-overflow, race, or shift. Prints "done" when every message has arrived unchanged.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kRounds = 2000, kBytes = 1000, kPsn = 77 };

#define MUST(condition)                                           \
  do {                                                            \
    if (!(condition)) {                                           \
      fprintf(stderr, "line %d: %s: %m\n", __LINE__, #condition); \
      exit(2);                                                    \
    }                                                             \
  } while (0)

struct Address {
  uint32_t qpn;
  union ibv_gid gid;
};

struct End {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_mr* mr;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  int gid_index;
  unsigned char* sent;
  unsigned char* received;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int sends;  // completed; guarded by lock
  int receives;
};

static int gid_index_of(struct ibv_context* context, union ibv_gid* gid) {
  static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
  for (int index = 0; ibv_query_gid(context, 1, index, gid) == 0; ++index) {
    if (memcmp(gid->raw, mapped, sizeof mapped) == 0) return index;
  }
  MUST(!"an IPv4 address");
  return -1;
}

static struct Address create(struct End* end) {
  struct ibv_device** devices = ibv_get_device_list(NULL);
  MUST(devices != NULL && devices[0] != NULL);
  MUST((end->context = ibv_open_device(devices[0])) != NULL);
  ibv_free_device_list(devices);
  struct Address own;
  memset(&own, 0, sizeof own);  // its padding is sent, too
  end->gid_index = gid_index_of(end->context, &own.gid);
  MUST((end->pd = ibv_alloc_pd(end->context)) != NULL);
  MUST((end->sent = calloc(2, kBytes)) != NULL);
  end->received = end->sent + kBytes;
  MUST((end->mr = ibv_reg_mr(end->pd, end->sent, 2 * kBytes, IBV_ACCESS_LOCAL_WRITE)) != NULL);
  MUST((end->cq = ibv_create_cq(end->context, 16, NULL, NULL, 0)) != NULL);
  struct ibv_qp_init_attr wanted = {
      .send_cq = end->cq,
      .recv_cq = end->cq,
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1};
  MUST((end->qp = ibv_create_qp(end->pd, &wanted)) != NULL);
  own.qpn = end->qp->qp_num;
  pthread_mutex_init(&end->lock, NULL);
  pthread_cond_init(&end->changed, NULL);
  return own;
}

static void post_receive(struct End* end) {
  struct ibv_sge piece = {(uintptr_t)end->received, kBytes, end->mr->lkey};
  struct ibv_recv_wr request = {.sg_list = &piece, .num_sge = 1};
  struct ibv_recv_wr* bad;
  MUST(ibv_post_recv(end->qp, &request, &bad) == 0);
}

static void post_send(struct End* end) {
  struct ibv_sge piece = {(uintptr_t)end->sent, kBytes, end->mr->lkey};
  struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND};
  struct ibv_send_wr* bad;
  MUST(ibv_post_send(end->qp, &request, &bad) == 0);
}

static void connect_to(struct End* end, const struct Address* peer) {
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  MUST(ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
       0);
  post_receive(end);
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_1024,
      .dest_qp_num = peer->qpn,
      .rq_psn = kPsn,
      .min_rnr_timer = 1,
      .ah_attr = {.grh = {.dgid = peer->gid, .sgid_index = (uint8_t)end->gid_index, .hop_limit = 64},
                  .is_global = 1,
                  .port_num = 1}};
  MUST(ibv_modify_qp(end->qp, &rtr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  struct ibv_qp_attr rts = {
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = kPsn};
  MUST(ibv_modify_qp(end->qp, &rts,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                         IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void* poll_all(void* argument) {
  struct End* end = argument;
  for (int left = 2 * kRounds; left > 0;) {
    struct ibv_wc wc;
    const int count = ibv_poll_cq(end->cq, 1, &wc);
    MUST(count >= 0);
    if (count == 0) continue;
    MUST(wc.status == IBV_WC_SUCCESS);
    --left;
    pthread_mutex_lock(&end->lock);
    ++*(wc.opcode == IBV_WC_SEND ? &end->sends : &end->receives);
    pthread_cond_signal(&end->changed);
    pthread_mutex_unlock(&end->lock);
  }
  return NULL;
}

static void wait_until(struct End* end, const int* count, int wanted) {
  pthread_mutex_lock(&end->lock);
  while (*count < wanted) pthread_cond_wait(&end->changed, &end->lock);
  pthread_mutex_unlock(&end->lock);
}

static void play(struct End* end, int begins) {
  pthread_t poller;
  MUST(pthread_create(&poller, NULL, poll_all, end) == 0);
  for (int round = 0; round < kRounds; ++round) {
    if (!begins) wait_until(end, &end->receives, round + 1);
    memset(end->sent, begins ? round : end->received[0] + 1, kBytes);
    if (!begins && round + 1 < kRounds) post_receive(end);
    post_send(end);
    wait_until(end, &end->sends, round + 1);
    if (!begins) continue;
    wait_until(end, &end->receives, round + 1);
    for (int i = 0; i < kBytes; ++i) MUST(end->received[i] == (unsigned char)(round + 1));
    if (round + 1 < kRounds) post_receive(end);
  }
  pthread_join(poller, NULL);
}

// Destroys everything, so that a leak detector sees what the library leaves.
static void destroy(struct End* end) {
  MUST(ibv_destroy_qp(end->qp) == 0);
  MUST(ibv_destroy_cq(end->cq) == 0);
  MUST(ibv_dereg_mr(end->mr) == 0);
  MUST(ibv_dealloc_pd(end->pd) == 0);
  MUST(ibv_close_device(end->context) == 0);
  free(end->sent);
  free(end);
}

static int shared;
static void* change_shared(void* argument) {
  ++shared;
  return argument;
}

static void make_fault(const char* fault) {
  if (strcmp(fault, "heap-overflow") == 0) {
    volatile char* block = malloc(10);
    block[strlen(fault)] = 1;
    free((void*)block);
  } else if (strcmp(fault, "race") == 0) {
    pthread_t other;
    MUST(pthread_create(&other, NULL, change_shared, NULL) == 0);
    ++shared;
    pthread_join(other, NULL);
  } else {
    volatile int bits = 33;
    shared = 1 << bits;
  }
}

int main(int argc, char** argv) {
  int ways[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ways) == 0);
  const pid_t child = fork();
  MUST(child >= 0);
  const int begins = child != 0;
  struct End* end = calloc(1, sizeof *end);
  const struct Address own = create(end);
  struct Address peer;
  MUST(write(ways[begins], &own, sizeof own) == sizeof own);
  MUST(read(ways[begins], &peer, sizeof peer) == sizeof peer);
  connect_to(end, &peer);
  char ready = 0;
  MUST(write(ways[begins], &ready, 1) == 1 && read(ways[begins], &ready, 1) == 1);
  play(end, begins);
  // The child ends when the parent has read everything.
  MUST(write(ways[begins], &ready, 1) == 1 && read(ways[begins], &ready, 1) == 1);
  destroy(end);
  if (!begins) return 0;
  int status = 1;
  MUST(waitpid(child, &status, 0) == child && status == 0);
  printf("done\n");
  fflush(stdout);
  if (argc > 1) make_fault(argv[1]);
  return 0;
}
