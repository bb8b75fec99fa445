// SPDX-License-Identifier: Apache-2.0
// The pingpongs over RC, UC and UD, and what all pingpongs print.
#include "commands/rdma_core/verbs/pingpong/pingpong.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <span>

#include <unistd.h>

#include "base/format.h"
#include "commands/rdma_core/common/handles.h"
#include "commands/rdma_core/verbs/pingpong/end.h"
#include "commands/rdma_core/verbs/pingpong/exchange.h"

namespace verbena::rdma_core {
namespace {

constexpr size_t kNetworkHeader = 40;

// Attribute masks for the transitions of RC and UC queue pairs.
constexpr int kReliableReady = kConnected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kSends = IBV_QP_STATE | IBV_QP_SQ_PSN;
constexpr int kReliableSends =
    kSends | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

// The wr_id of work requests. The values are also bits for the completions that a queue pair still waits for.
enum Work : uint64_t { kReceive = 1, kSend = 2 };

struct Completion {
  uint64_t id;
  ibv_wc_status status;
  uint32_t qpn;
  uint64_t timestamp;  // in device clock cycles; 0 without Settings::timestamps
};

// One end of a pingpong over RC, UC or UD: a buffer, and queue pairs that send it and receive into it.
class Endpoint : public PingpongEnd {
 public:
  Endpoint(const PingpongProgram& program, const Settings& settings) : PingpongEnd(program, settings) {}

  // Creates all objects and moves the queue pairs to INIT, so that receives can be posted.
  void open(ibv_device* device) {
    allocate(settings_.size + headroom());
    open_device(device);
    if (datagrams()) require_port_fits();
    make_domain();
    if (settings_.on_demand || settings_.timestamps || settings_.device_memory) use_features();
    register_memory();
    make_completion_queue();
    make_queue_pairs();
  }

  // Returns the address of each queue pair, with a new random PSN. Call it once, before connect().
  std::vector<Address> addresses() const {
    Address address;
    address.lid = find_lid("Couldn't get port info");
    address.gid = find_gid();
    std::vector<Address> all;
    for (const QueuePair& each : queue_pairs_) {
      address.qpn = each->qp_num;
      address.psn = new_psn();
      all.push_back(address);
    }
    return all;
  }

  // Moves the queue pairs to RTS. `local` is the result of addresses(), `remote` the peer's addresses.
  void connect(std::span<const Address> local, std::span<const Address> remote) {
    const bool reliable = program_.type == IBV_QPT_RC;
    const int receive_mask = datagrams() ? IBV_QP_STATE : reliable ? kReliableReady : kConnected;
    for (size_t i = 0; i < queue_pairs_.size(); ++i) {
      make_ready(queue_pairs_[i].get(), name_of(i),
                 {remote[i].lid, remote[i].gid, remote[i].qpn, remote[i].psn}, local[i].psn, receive_mask,
                 reliable ? kReliableSends : kSends);
    }
    if (!datagrams()) return;
    ibv_ah_attr path = path_to(remote[0].lid, remote[0].gid);
    handle_.reset(ibv_create_ah(domain_.get(), &path));
    remote_qpn_ = remote[0].qpn;
    if (!handle_) fail_of(errno, "Failed to create AH", path_remedy(remote[0].gid));
  }

  // Posts up to `count` receives and returns the number posted. Reports no error.
  unsigned post_receives(unsigned count) {
    const ibv_sge all = piece(false);
    for (unsigned i = 0; i < count; ++i) {
      const int error = shared_ ? post_receive(shared_.get(), all, kReceive)
                                : post_receive(queue_pairs_.front().get(), all, kReceive);
      if (error != 0) return i;
    }
    return count;
  }

  // Posts a signaled send of the buffer to the queue pair with this index.
  void post_send(size_t index) {
    const ibv_sge all = piece(true);
    int error = 0;
    if (settings_.new_send) {
      ibv_qp_ex* queue_pair = ibv_qp_to_qp_ex(queue_pairs_[index].get());
      ibv_wr_start(queue_pair);
      queue_pair->wr_id = kSend;
      queue_pair->wr_flags = send_flags_;
      ibv_wr_send(queue_pair);
      ibv_wr_set_sge(queue_pair, all.lkey, all.addr, all.length);
      error = ibv_wr_complete(queue_pair);
    } else {
      ibv_send_wr request = {};
      request.wr_id = kSend;
      request.opcode = IBV_WR_SEND;
      request.send_flags = send_flags_;
      if (datagrams()) request.wr.ud = {handle_.get(), remote_qpn_, kQueueKey};
      error = rdma_core::post_send(queue_pairs_[index].get(), all, request);
    }
    check(error, "Couldn't post send");
  }

  // Polls once for completions. Returns their number, which may be 0.
  size_t poll(std::span<Completion> completions) {
    if (extended_ != nullptr) return poll_with_timestamps(completions);
    polled_.resize(completions.size());
    const int count = ibv_poll_cq(completions_.get(), static_cast<int>(polled_.size()), polled_.data());
    if (count < 0) fail(verbena::format("poll CQ failed {}", count));
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      completions[i] = {polled_[i].wr_id, polled_[i].status, polled_[i].qp_num, 0};
    }
    return static_cast<size_t>(count);
  }

  // Returns the index of the queue pair with this number.
  size_t find(uint32_t qpn) const {
    for (size_t i = 0; i < queue_pairs_.size(); ++i) {
      if (queue_pairs_[i]->qp_num == qpn) return i;
    }
    fail(verbena::format("Couldn't find QPN {:06x}", qpn));
  }

  // With Settings::check: mark_pages() writes a 0 into each page of the message that the client sends.
  // wrong_pages() returns the indices of pages without a 0 in the message that the server received last. The
  // server's buffer initially holds other values.
  void mark_pages() {
    for (size_t at = 0; at < settings_.size; at += page_) buffer_.get()[at + headroom()] = 0;
  }

  std::vector<size_t> wrong_pages() {
    if (device_memory_) {
      check(ibv_memcpy_from_dm(buffer_.get(), device_memory_.get(), 0, settings_.size),
            "Copy from DM buffer failed");
    }
    std::vector<size_t> wrong;
    for (size_t at = 0; at < settings_.size; at += page_) {
      if (buffer_.get()[at + headroom()] != 0) wrong.push_back(at / page_);
    }
    return wrong;
  }

  // Copies the buffer to device memory, if Settings::device_memory is set. Call it before the first send.
  void load_device_memory() {
    if (!device_memory_) return;
    check(ibv_memcpy_to_dm(device_memory_.get(), 0, buffer_.get(), settings_.size),
          "Copy to dm buffer failed");
  }

  uint64_t timestamp_mask() const { return timestamp_mask_; }

  // Destroys all objects.
  void close() {
    acknowledge_events();
    destroy(handle_, ibv_destroy_ah, "Couldn't destroy AH");
    for (size_t i = 0; i < queue_pairs_.size(); ++i) {
      destroy(queue_pairs_[i], ibv_destroy_qp, verbena::format("Couldn't destroy {}", name_of(i)));
    }
    destroy(shared_, ibv_destroy_srq, "Couldn't destroy SRQ");
    destroy(completions_, ibv_destroy_cq, "Couldn't destroy CQ");
    destroy(region_, ibv_dereg_mr, "Couldn't deregister MR");
    destroy(device_memory_, free_device_memory, "Couldn't free DM");
    close_device();
  }

 private:
  void require_port_fits() const {
    const ibv_port_attr attributes =
        query_port(verbena::format("Unable to query port info for port {}", settings_.ib_port));
    const unsigned mtu = 1U << (attributes.active_mtu + 7);
    if (settings_.size > mtu) {
      fail(verbena::format("Requested size larger than port MTU ({})", mtu),
           "a datagram is one packet; -s says its size");
    }
  }

  void use_features() {
    const ibv_device_attr_ex device = query();
    if (settings_.on_demand) use_on_demand(device, device.odp_caps.per_transport_caps.rc_odp_caps);
    if (settings_.timestamps && device.completion_timestamp_mask == 0) {
      fail("The device isn't completion timestamp capable");
    }
    timestamp_mask_ = device.completion_timestamp_mask;
    if (!settings_.device_memory) return;
    if (device.max_dm_size == 0) fail("Device doesn't support dm allocation");
    if (device.max_dm_size < settings_.size) {
      fail("Device memory is insufficient", verbena::format("it has {} bytes", device.max_dm_size));
    }
    ibv_alloc_dm_attr attributes = {};
    attributes.length = settings_.size;
    take(device_memory_, ibv_alloc_dm(context_.get(), &attributes), "Dev mem allocation failed");
    access_ |= IBV_ACCESS_ZERO_BASED;
  }

  void register_memory() {
    const auto access = static_cast<unsigned>(access_);
    const size_t size = settings_.size + headroom();
    if (settings_.implicit) {
      region_.reset(ibv_reg_mr(domain_.get(), nullptr, SIZE_MAX, access_));
    } else if (device_memory_) {
      region_.reset(ibv_reg_dm_mr(domain_.get(), device_memory_.get(), 0, size, access));
    } else {
      region_.reset(ibv_reg_mr(domain_.get(), buffer_.get(), size, access_));
    }
    if (!region_) fail_of(errno, "Couldn't register MR");
    if (!settings_.prefetch) return;
    ibv_sge all = piece(false);
    const int error = ibv_advise_mr(domain_.get(), IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                                    IB_UVERBS_ADVISE_MR_FLAG_FLUSH, &all, 1);
    if (error != 0)
      complain(verbena::format("Couldn't prefetch MR({}). Continue anyway", error), std::strerror(error));
  }

  void make_completion_queue() {
    const int entries = static_cast<int>(settings_.receives + settings_.queue_pairs);
    if (settings_.timestamps) {
      ibv_cq_init_attr_ex attributes = {};
      attributes.cqe = static_cast<uint32_t>(entries);
      attributes.channel = channel_.get();
      attributes.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_QP_NUM;
      extended_ = ibv_create_cq_ex(context_.get(), &attributes);
      completions_.reset(extended_ ? ibv_cq_ex_to_cq(extended_) : nullptr);
    } else {
      completions_.reset(ibv_create_cq(context_.get(), entries, nullptr, channel_.get(), 0));
    }
    if (!completions_) fail_of(errno, "Couldn't create CQ");
  }

  void make_queue_pairs() {
    if (program_.shared_receives) {
      ibv_srq_init_attr attributes = {};
      attributes.attr.max_wr = settings_.receives;
      attributes.attr.max_sge = 1;
      take(shared_, ibv_create_srq(domain_.get(), &attributes), "Couldn't create SRQ");
    }
    for (size_t i = 0; i < settings_.queue_pairs; ++i) make_queue_pair(i);
    for (size_t i = 0; i < settings_.queue_pairs; ++i) initialize(queue_pairs_[i].get(), name_of(i));
  }

  void make_queue_pair(size_t index) {
    ibv_qp_init_attr_ex wanted = {};
    wanted.send_cq = wanted.recv_cq = completions_.get();
    wanted.srq = shared_.get();
    wanted.cap.max_send_wr = wanted.cap.max_send_sge = 1;
    if (!shared_) {
      wanted.cap.max_recv_wr = settings_.receives;
      wanted.cap.max_recv_sge = 1;
    }
    wanted.qp_type = program_.type;
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    wanted.pd = domain_.get();
    if (settings_.new_send) {
      wanted.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      wanted.send_ops_flags = IBV_QP_EX_WITH_SEND;
    }
    QueuePair& made = queue_pairs_.emplace_back();
    take(made, ibv_create_qp_ex(context_.get(), &wanted),
         verbena::format("Couldn't create {}", name_of(index)));
    ibv_qp_attr attributes = {};
    ibv_qp_init_attr has = {};
    ibv_query_qp(made.get(), &attributes, IBV_QP_CAP, &has);
    if (has.cap.max_inline_data >= settings_.size && !device_memory_) send_flags_ |= IBV_SEND_INLINE;
  }

  size_t poll_with_timestamps(std::span<Completion> completions) {
    ibv_poll_cq_attr attributes = {};
    int error = ibv_start_poll(extended_, &attributes);
    if (error == ENOENT) return 0;
    if (error != 0) fail_of(error, verbena::format("poll CQ failed {}", error));
    size_t count = 0;
    do {
      completions[count++] = {extended_->wr_id, extended_->status, ibv_wc_read_qp_num(extended_),
                              ibv_wc_read_completion_ts(extended_)};
      error = count < completions.size() ? ibv_next_poll(extended_) : ENOENT;
    } while (error == 0);
    ibv_end_poll(extended_);
    if (error != ENOENT) fail_of(error, verbena::format("poll CQ failed {}", error));
    return count;
  }

  // Returns the bytes of the GRH that precedes a received datagram; 0 for RC and UC.
  size_t headroom() const { return datagrams() ? kNetworkHeader : 0; }

  ibv_sge piece(bool sent) const {
    const size_t before = sent ? headroom() : 0;
    const uint64_t start = device_memory_ ? 0 : reinterpret_cast<uintptr_t>(buffer_.get());
    return {start + before, static_cast<uint32_t>(settings_.size + headroom() - before), region_->lkey};
  }

  std::string name_of(size_t index) const {
    return program_.shared_receives ? verbena::format("QP[{}]", index) : "QP";
  }

  unsigned send_flags_ = IBV_SEND_SIGNALED;
  uint32_t remote_qpn_ = 0;  // destination of datagrams
  uint64_t timestamp_mask_ = 0;
  std::vector<ibv_wc> polled_;

  DeviceMemory device_memory_;
  Region region_;
  ibv_cq_ex* extended_ = nullptr;  // the same CQ as completions_, for timestamps; null without them
  SharedQueue shared_;
  std::vector<QueuePair> queue_pairs_;
  AddressHandle handle_;
};

// The exchange of messages once both ends are connected.
class Game {
 public:
  Game(const Settings& settings, Endpoint& endpoint)
      : settings_(settings),
        endpoint_(endpoint),
        clock_(endpoint.timestamp_mask()),
        awaited_(settings.queue_pairs, kReceive),
        completions_(settings.queue_pairs + 1) {}

  // Posts receives. Call it before the peer can send.
  void replenish() {
    posted_ += endpoint_.post_receives(settings_.receives - posted_);
    if (posted_ < settings_.receives) fail(verbena::format("Couldn't post receive ({})", posted_));
  }

  void play() {
    if (!settings_.serves()) {
      for (size_t i = 0; i < awaited_.size(); ++i) send(i);
    }
    while (received_ < settings_.iterations || sent_ < settings_.iterations) {
      if (settings_.events) endpoint_.await_event();
      take_completions();
    }
  }

  const ReceiveClock& clock() const { return clock_; }

 private:
  void send(size_t queue_pair) {
    awaited_[queue_pair] = kReceive | kSend;
    endpoint_.post_send(queue_pair);
  }

  // Handles completions. With events: until there are none, since one event stands for several. Without:
  // polls until there is at least one.
  void take_completions() {
    for (;;) {
      const size_t count = endpoint_.poll(completions_);
      for (size_t i = 0; i < count; ++i) take(completions_[i]);
      if (settings_.events ? count == 0 : count > 0) return;
    }
  }

  void take(const Completion& completion) {
    if (completion.status != IBV_WC_SUCCESS) {
      fail(verbena::format("Failed status {} ({}) for wr_id {}", ibv_wc_status_str(completion.status),
                           static_cast<int>(completion.status), completion.id),
           "'verbena explain wc' explains each status");
    }
    const size_t queue_pair = endpoint_.find(completion.qpn);
    if (completion.id == kSend) {
      ++sent_;
    } else {
      ++received_;
      clock_.received(completion.timestamp);
      if (--posted_ <= settings_.queue_pairs) replenish();
    }
    awaited_[queue_pair] &= ~completion.id;
    if (sent_ < settings_.iterations && awaited_[queue_pair] == 0) send(queue_pair);
  }

  const Settings& settings_;
  Endpoint& endpoint_;
  ReceiveClock clock_;
  std::vector<uint64_t> awaited_;  // by queue pair, bits of Work
  std::vector<Completion> completions_;
  unsigned posted_ = 0;
  unsigned received_ = 0;
  unsigned sent_ = 0;
};

void print_addresses(const PingpongProgram& program, const Settings& settings,
                     const std::vector<Address>& addresses, bool local, Output& output) {
  auto& listed = output.object()[local ? "local" : "remote"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < settings.queue_pairs; ++i) {
    const Address& each = addresses[i];
    const std::string gid = gid_text(each.gid);
    output.text("  %s LID 0x%04x, QPN 0x%06x, PSN 0x%06x%c GID %s\n",
                local ? "local address: " : "remote address:", each.lid, each.qpn, each.psn,
                local ? program.before_gid : ',', gid.c_str());
    listed.push_back({{"lid", each.lid}, {"qpn", each.qpn}, {"psn", each.psn}, {"gid", gid}});
  }
  std::fflush(stdout);  // shows a reader of the pipe that the server is ready
}

void play(const PingpongProgram& program, const Settings& settings, ibv_device* device, Output& output) {
  Endpoint endpoint(program, settings);
  endpoint.open(device);
  Game game(settings, endpoint);
  game.replenish();
  if (settings.events) endpoint.ask_for_event();
  const std::vector<Address> local = endpoint.addresses();
  print_addresses(program, settings, local, true, output);
  const auto connect = [&](const std::vector<Address>& remote) { endpoint.connect(local, remote); };
  const std::vector<Address> remote = exchange(program, settings, local, connect);
  print_addresses(program, settings, remote, false, output);
  if (!settings.serves()) {
    connect(remote);
    if (settings.check) endpoint.mark_pages();
    endpoint.load_device_memory();
  }
  const auto start = std::chrono::steady_clock::now();
  game.play();
  report(settings, std::chrono::steady_clock::now() - start, settings.timestamps ? &game.clock() : nullptr,
         output);
  if (settings.check && settings.serves()) {
    const std::vector<size_t> wrong = endpoint.wrong_pages();
    for (const size_t page : wrong) output.text("invalid data in page %zu\n", page);
    output.object()["invalid_pages"] = wrong;
  }
  endpoint.close();
}

// Fills in the first members of the JSON object: program, role and settings.
void describe(const PingpongProgram& program, const Settings& settings, ibv_device* device, Output& output) {
  constexpr unsigned kBase = 7;  // IBV_MTU_256 is 1
  auto& object = output.object();
  object["program"] = program.name;
  object["transport"] = program.transport;
  object["role"] = settings.serves() ? "server" : "client";
  if (!settings.serves()) object["server"] = settings.server;
  object["tcp_port"] = settings.tcp_port;
  object["device"] = ibv_get_device_name(device);
  object["ib_port"] = settings.ib_port;
  if (settings.gid_index >= 0) object["gid_index"] = settings.gid_index;
  object["size"] = settings.size;
  if (program.type != IBV_QPT_UD) object["mtu"] = 1U << (settings.mtu + kBase);
  object["events"] = settings.events;
}

}  // namespace

void ReceiveClock::received(uint64_t timestamp) {
  if (previous_) {
    const uint64_t passed = (timestamp - *previous_) & mask_;  // correct across a wrap
    max_ = std::max(max_, passed);
    least_ = std::min(least_, passed);
    total_ += passed;
    ++count_;
  }
  previous_ = timestamp;
}

Figures add_figures(const Settings& settings, std::chrono::duration<double> took, Output& output) {
  const double microseconds = took.count() * 1e6;
  const unsigned long long bytes = 2ULL * settings.size * settings.clients * settings.iterations;
  const Figures figures = {bytes, took.count(), static_cast<double>(bytes) * 8. / microseconds,
                           microseconds / settings.iterations};
  auto& object = output.object();
  object["iterations"] = settings.iterations;
  object["bytes"] = figures.bytes;
  object["seconds"] = figures.seconds;
  object["mbit_per_second"] = figures.megabits;
  object["usec_per_iteration"] = figures.microseconds_each;
  return figures;
}

void report(const Settings& settings, std::chrono::duration<double> took, const ReceiveClock* clock,
            Output& output) {
  const Figures all = add_figures(settings, took, output);
  output.text("%lld bytes in %.2f seconds = %.2f Mbit/sec\n", all.bytes, all.seconds, all.megabits);
  output.text("%d iters in %.2f seconds = %.2f usec/iter\n", static_cast<int>(settings.iterations),
              all.seconds, all.microseconds_each);
  if (clock == nullptr || clock->count() == 0) return;
  output.text("Max receive completion clock cycles = %llu\n", static_cast<unsigned long long>(clock->most()));
  output.text("Min receive completion clock cycles = %llu\n",
              static_cast<unsigned long long>(clock->least()));
  output.text("Average receive completion clock cycles = %f\n", clock->average());
  output.object()["receive_clock_cycles"] = {
      {"max", clock->most()}, {"min", clock->least()}, {"average", clock->average()}};
}

int run_pingpong(const PingpongProgram& program, int argc, char** argv) {
  auto settings = read_settings(program, argc, argv);
  if (!settings) return 1;
  if (settings->help) return 0;
  const bool xrc = program.type == IBV_QPT_XRC_SEND;
  if (!settings->serves()) settings->clients = 1;
  srand48(getpid() * time(nullptr));
  std::optional<DeviceList> devices;
  ibv_device* device = nullptr;
  try {
    devices.emplace();
    device =
        devices->find(settings->device, settings->device.empty()
                                            ? "No IB devices found"
                                            : verbena::format("IB device {} not found", settings->device));
  } catch (const Failure&) {
    if (xrc) complain("Failed to open device");
    throw;
  }
  Output output(settings->json);
  describe(program, *settings, device, output);
  (xrc ? play_over_xrc : play)(program, *settings, device, output);
  output.finish();
  return 0;
}

}  // namespace verbena::rdma_core
