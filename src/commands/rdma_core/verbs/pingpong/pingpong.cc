// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/pingpong/pingpong.h"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <unistd.h>

#include "base/format.h"
#include "commands/rdma_core/common/device_list.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/verbs/pingpong/endpoint.h"
#include "commands/rdma_core/verbs/pingpong/exchange.h"

namespace verbena::rdma_core {
namespace {

// The exchange of messages once both ends are connected.
class Game {
 public:
  Game(const Settings& settings, Endpoint& endpoint)
      : settings_(settings),
        endpoint_(endpoint),
        clock_(endpoint.timestamp_mask()),
        awaited_(settings.queue_pairs, kReceive),
        completions_(settings.queue_pairs + 1) {}

  // Posts receives. Call before the peer can send.
  bool prepare() { return replenish(); }

  bool play() {
    if (!settings_.serves() && !send_first()) return false;
    while (received_ < settings_.iterations || sent_ < settings_.iterations) {
      if (settings_.events && !endpoint_.await_event()) return false;
      if (!take_completions()) return false;
    }
    return true;
  }

  const ReceiveClock& clock() const { return clock_; }

 private:
  bool replenish() {
    posted_ += endpoint_.post_receives(settings_.receives - posted_);
    if (posted_ < settings_.receives) complain(verbena::format("Couldn't post receive ({})", posted_));
    return posted_ == settings_.receives;
  }

  bool send(size_t queue_pair) {
    awaited_[queue_pair] = kReceive | kSend;
    return endpoint_.post_send(queue_pair);
  }

  bool send_first() {
    for (size_t i = 0; i < awaited_.size(); ++i) {
      if (!send(i)) return false;
    }
    return true;
  }

  // Handles completions. With events: until there are none, since one event stands for several. Without:
  // polls until there is at least one.
  bool take_completions() {
    for (;;) {
      const auto count = endpoint_.poll(completions_);
      if (!count) return false;
      for (size_t i = 0; i < *count; ++i) {
        if (!take(completions_[i])) return false;
      }
      if (settings_.events ? *count == 0 : *count > 0) return true;
    }
  }

  bool take(const Completion& completion) {
    if (completion.status != IBV_WC_SUCCESS) {
      complain(verbena::format("Failed status {} ({}) for wr_id {}", ibv_wc_status_str(completion.status),
                               static_cast<int>(completion.status), completion.id),
               "'verbena explain wc' explains each status");
      return false;
    }
    const auto queue_pair = endpoint_.find(completion.qpn);
    if (!queue_pair) {
      complain(verbena::format("Couldn't find QPN {:06x}", completion.qpn));
      return false;
    }
    if (completion.id == kSend) {
      ++sent_;
    } else {
      ++received_;
      clock_.received(completion.timestamp);
      if (--posted_ <= settings_.queue_pairs && !replenish()) return false;
    }
    awaited_[*queue_pair] &= ~completion.id;
    const bool goes_on = sent_ < settings_.iterations && awaited_[*queue_pair] == 0;
    return !goes_on || send(*queue_pair);
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

// Reports pages without the client's mark in the message that the server received last.
bool report_check(const Settings& settings, Endpoint& endpoint, Output& output) {
  if (!settings.check || !settings.serves()) return true;
  const auto wrong = endpoint.wrong_pages();
  if (!wrong) return false;
  for (const size_t page : *wrong) output.text("invalid data in page %zu\n", page);
  output.object()["invalid_pages"] = *wrong;
  return true;
}

bool play(const PingpongProgram& program, const Settings& settings, ibv_device* device, Output& output) {
  Endpoint endpoint(program, settings);
  if (!endpoint.open(device)) return false;
  Game game(settings, endpoint);
  if (!game.prepare() || (settings.events && !endpoint.ask_for_event())) return false;
  const auto local = endpoint.addresses();
  if (!local) return false;
  print_addresses(program, settings, *local, true, output);
  const auto connect = [&](const std::vector<Address>& remote) { return endpoint.connect(*local, remote); };
  const auto remote = exchange(program, settings, *local, connect);
  if (!remote) return false;
  print_addresses(program, settings, *remote, false, output);
  if (!settings.serves()) {
    if (!connect(*remote)) return false;
    if (settings.check) endpoint.mark_pages();
    if (!endpoint.load_device_memory()) return false;
  }
  const auto start = std::chrono::steady_clock::now();
  if (!game.play()) return false;
  report(settings, std::chrono::steady_clock::now() - start, settings.timestamps ? &game.clock() : nullptr,
         output);
  return report_check(settings, endpoint, output) && endpoint.close();
}

// Returns the device that the user chose, or null after reporting that there is none.
ibv_device* choose_device(const DeviceList& devices, const Settings& settings) {
  if (!devices.listed()) return nullptr;
  return devices.find(settings.device, settings.device.empty()
                                           ? "No IB devices found"
                                           : verbena::format("IB device {} not found", settings.device));
}

}  // namespace

int run_pingpong(const PingpongProgram& program, int argc, char** argv) {
  auto settings = read_settings(program, argc, argv);
  if (!settings) return 1;
  if (settings->help) return 0;
  const bool xrc = program.type == IBV_QPT_XRC_SEND;
  if (!settings->serves()) settings->clients = 1;
  srand48(getpid() * time(nullptr));
  const DeviceList devices;
  ibv_device* device = choose_device(devices, *settings);
  if (device == nullptr) {
    if (xrc) complain("Failed to open device");
    return 1;
  }
  Output output(settings->json);
  describe(program, *settings, device, output);
  if (!(xrc ? play_over_xrc : play)(program, *settings, device, output)) return 1;
  output.finish();
  return 0;
}

}  // namespace verbena::rdma_core
