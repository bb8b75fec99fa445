// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include <endian.h>

#include "commands/perf/cm_identifier.h"
#include "commands/perf/completions.h"
#include "commands/perf/exchange.h"

namespace verbena::perf {
namespace {

// The form of Keys in messages, in network byte order.
struct Message {
  std::uint32_t lid, reads, qp_num, psn, rkey, unused;
  std::uint64_t address;
  ibv_gid gid;
  std::uint32_t srq_num, gid_index;
};
static_assert(sizeof(Message) == 56);

// Exchanges by messages on a queue pair of its own, which librdmacm connects (-z, -R).
class CmChannel final : public Channel {
 public:
  CmChannel(const CmIdentifier& identifier, const verbena::context& device)
      : domain_(device.make_pd().value()),
        sends_(device.make_cq(kReceives).value()),
        receives_(device.make_cq(kReceives).value()),
        memory_(domain_.allocate((kReceives + 1) * kSlot).value()),
        pair_(make_pair(
            identifier, domain_, verbena::rc,
            {.send_cq = sends_, .recv_cq = receives_, .max_send_wr = 1, .max_recv_wr = kReceives})) {
    for (std::size_t i = 0; i < kReceives; ++i) post(i);
  }
  void write(std::span<const char> bytes) override {
    const verbena::slice from = memory_.part(kReceives * kSlot, bytes.size());
    std::memcpy(from.data(), bytes.data(), bytes.size());
    pair_.post(verbena::send(from).signaled()).value();
    while (take_completions<1>(sends_, [](const verbena::completion&) {}) == 0) continue;
  }
  void read(std::span<char> bytes) override {
    std::optional<std::size_t> slot;
    while (!slot) take_completions<1>(receives_, [&](const verbena::completion& one) { slot = one.id(); });
    std::memcpy(bytes.data(), memory_.part(*slot * kSlot).data(), bytes.size());
    post(*slot);
  }
  void write(const Keys& keys) override {
    Message message{};
    message.lid = htobe32(keys.lid);
    message.reads = htobe32(keys.reads);
    message.qp_num = htobe32(keys.qp_num);
    message.psn = htobe32(keys.psn);
    message.rkey = htobe32(keys.rkey);
    message.address = htobe64(keys.address);
    message.gid = keys.gid;
    message.srq_num = htobe32(keys.srq_num);
    write(std::span<const char>(reinterpret_cast<const char*>(&message), sizeof message));
  }
  Keys read_keys() override {
    Message message{};
    read(std::span<char>(reinterpret_cast<char*>(&message), sizeof message));
    Keys keys;
    keys.lid = be32toh(message.lid);
    keys.reads = be32toh(message.reads);
    keys.qp_num = be32toh(message.qp_num);
    keys.psn = be32toh(message.psn);
    keys.rkey = be32toh(message.rkey);
    keys.address = be64toh(message.address);
    keys.gid = message.gid;
    keys.srq_num = be32toh(message.srq_num);
    constexpr std::uint32_t kMask24 = 0xffffff;
    if (keys.qp_num > kMask24 || keys.psn > kMask24)
      throw std::runtime_error("cannot read from the peer: it has sent something else than keys");
    return keys;
  }
  void end() override {}

 private:
  static constexpr std::size_t kReceives = 4, kSlot = 64;

  void post(std::size_t slot) {
    pair_.post(verbena::recv(memory_.part(slot * kSlot, sizeof(Message))).numbered(slot)).value();
  }

  verbena::pd domain_;
  verbena::cq sends_;
  verbena::cq receives_;
  verbena::region memory_;
  verbena::qp pair_;
};

}  // namespace

std::unique_ptr<Channel> connect_by_cm(const Parameters& parameters) {
  if (!parameters.is_client()) {
    const CmIdentifier listener = listen_for_clients(parameters, RDMA_PS_TCP, 1);
    const CmIdentifier client = next_client(listener);
    auto channel = std::make_unique<CmChannel>(client, device_of(client));
    accept(client, connection_parameters(parameters, 0));
    return channel;
  }
  for (int attempt = 0;; ++attempt) {
    const CmIdentifier identifier = resolve_server(parameters, RDMA_PS_TCP);
    auto channel = std::make_unique<CmChannel>(identifier, device_of(identifier));
    if (connect(identifier, connection_parameters(parameters, 0))) return channel;
    wait_for_listener(attempt);
  }
}

}  // namespace verbena::perf
