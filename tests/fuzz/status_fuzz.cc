// SPDX-License-Identifier: Apache-2.0
// A client of the agent that writes arbitrary values into its status page, also during a read, and has an
// arbitrary name. Promises: the agent, `verbena capture` and `verbena status` read a limited part of the
// page, and terminate. They count nothing for devices that do not exist or for QPs of other slots. Their
// output contains no character that a terminal would obey, and is valid JSON.
//
// The files are simulated: the input chooses the contents of each read.
#include <cerrno>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/types.h>
#include <unistd.h>

#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/status/counter_publisher.h"
#include "base/text.h"
#include "commands/verbena/recorder.h"
#include "commands/verbena/status_output.h"
#include "control/model/agent_status.h"
#include "control/protocol/status_page.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"
#include "wire/roce/qpn.h"

namespace {

using verbena::fuzz::Choices;
using verbena::protocol::QpStatus;
using verbena::protocol::StatusPage;

// While an input is set, reads of files return status pages; otherwise real files are read.
Choices* at_hand = nullptr;
uint32_t slot_at_hand = 0;
size_t max_read = 0;

constexpr size_t kQpsOffset = offsetof(StatusPage, qps);

// Writes numbers as a process publishes them, or nearly, to some places of the read buffer.
void write_qps(Choices& choices, char* to, size_t bytes, size_t offset) {
  for (uint32_t left = choices.below(6); left > 0 && !choices.empty(); --left) {
    const size_t place = choices.number<uint16_t>() % (bytes / sizeof(QpStatus));
    uint64_t words[sizeof(QpStatus) / 8] = {};
    const size_t index = (offset - kQpsOffset) / sizeof(QpStatus) + place;
    const uint8_t help = choices.byte();
    words[0] = help & 1;
    words[1] = (help & 2) != 0
                   ? verbena::roce::Qpn::in_slot(slot_at_hand, static_cast<uint32_t>(index)).value()
                   : choices.number<uint64_t>();
    words[2] = (help & 4) != 0 ? choices.below(12) : choices.number<uint64_t>();
    words[3] = (help & 8) != 0 ? choices.below(8) : choices.number<uint64_t>();
    words[5] = (help & 16) != 0 ? choices.below(4) : choices.number<uint64_t>();
    words[6 + choices.below(verbena::protocol::kQpNumbers)] = choices.number<uint64_t>();
    std::memcpy(to + place * sizeof(QpStatus), words, sizeof words);
  }
}

}  // namespace

extern "C" {
ssize_t __real_pread(int fd, void* to, size_t bytes, off_t offset);
off_t __real_lseek(int fd, off_t offset, int whence);

ssize_t __wrap_pread(int fd, void* to, size_t bytes, off_t at) {
  if (at_hand == nullptr) return __real_pread(fd, to, bytes, at);
  max_read += bytes;
  const auto offset = static_cast<size_t>(at);
  VERBENA_REQUIRE(offset + bytes <= sizeof(StatusPage));
  std::memset(to, 0, bytes);
  if (at_hand->empty()) return 0;
  if (offset == 0 && bytes == sizeof(uint64_t)) {
    const uint64_t magic = at_hand->below(16) != 0 ? StatusPage::kMagic : at_hand->number<uint64_t>();
    std::memcpy(to, &magic, sizeof magic);
  } else if (offset < kQpsOffset) {
    const auto numbers = at_hand->bytes(std::min<size_t>(bytes, at_hand->byte()));
    if (!numbers.empty()) std::memcpy(to, numbers.data(), numbers.size());
  } else {
    if (at_hand->below(16) == 0) return -1;
    if (bytes >= sizeof(QpStatus)) write_qps(*at_hand, static_cast<char*>(to), bytes, offset);
  }
  return static_cast<ssize_t>(bytes);
}

// The next data or hole, a failure, or nonsense.
off_t __wrap_lseek(int fd, off_t offset, int whence) {
  if (at_hand == nullptr) return __real_lseek(fd, offset, whence);
  switch (at_hand->below(8)) {
    case 0:
      errno = ENXIO;
      return -1;
    case 1:
      errno = EINVAL;
      return -1;
    case 2:
      return static_cast<off_t>(at_hand->number<uint32_t>());
    default:
      return offset + static_cast<off_t>(at_hand->number<uint16_t>()) * 64;
  }
}
}

namespace verbena {
namespace {

constexpr uid_t kOwn = 0;
constexpr uid_t kHostile = 1000;
constexpr uint32_t kDevices[] = {0, 2};

class Page {
 public:
  Page(Choices& choices, uint32_t slot) { at_hand = &choices, slot_at_hand = slot; }
  ~Page() { at_hand = nullptr; }
};

// The agent's part.
class Counting {
 public:
  Counting() {
    for (uint64_t session = 1; session <= 3; ++session) {
      agent::Lessee lessee;
      lessee.session = session;
      lessee.uid = session == 1 ? kOwn : kHostile;
      slots_.push_back(*table_.lease(lessee, TimePoint(std::chrono::hours(1))));
    }
  }

  void run(Choices& choices) {
    agent::CounterCollector collector(kOwn);
    collector.set_devices({std::begin(kDevices), std::end(kDevices)});
    while (!choices.empty()) {
      const agent::LeasedSlot& slot = slots_[choices.below(3)];
      const Page page(choices, slot.index);
      const uint32_t first = choices.number<uint16_t>() % protocol::kQpsPerSlot;
      max_read = 0;
      // A part, as a user's thread reads it (CounterSweep).
      const control::QpsRead read = control::read_some_qps(slot.page, first);
      VERBENA_REQUIRE(read.next > first && read.next <= protocol::kQpsPerSlot);
      VERBENA_REQUIRE(read.work <= agent::CounterSweep::kMaxPart);
      VERBENA_REQUIRE(max_read <= agent::CounterSweep::kMaxPart * sizeof(QpStatus));
      collector.collect(slot, read);
      VERBENA_REQUIRE(collector.devices().size() == std::size(kDevices));
    }
  }

  // A page's numbers for QPs of other slots, or for devices that do not exist, do not count.
  void forge(Choices& choices) {
    agent::CounterCollector collector(kOwn);
    collector.set_devices({std::begin(kDevices), std::end(kDevices)});
    const agent::LeasedSlot& slot = slots_[1];
    control::QpsRead read;
    bool counts = false;
    while (!choices.empty()) {
      control::QpNumbers qp;
      const uint32_t place = choices.number<uint16_t>() % protocol::kQpsPerSlot;
      const uint32_t of_slot = slots_[choices.below(3)].index;
      qp.qpn = choices.yes() ? roce::Qpn::in_slot(of_slot, place).value() : choices.number<uint32_t>();
      qp.device_index = choices.below(4);
      qp.counters[choices.below(transport::kQpCounterCount)] = choices.byte();
      counts |= qp.qpn == roce::Qpn::in_slot(slot.index, place).value();
      read.qps.push_back(qp);
      read.places.push_back(place);
    }
    collector.collect(slot, read);
    VERBENA_REQUIRE(collector.devices().size() == std::size(kDevices));
    for (const auto& [device, sums] : collector.devices()) {
      VERBENA_REQUIRE(counts || sums == control::DeviceCounters());
    }
    collector.forget(slot);
  }

 private:
  agent::Wire wire_{4791};
  agent::SlotTable table_{wire_, kOwn};
  std::vector<agent::LeasedSlot> slots_;
};

// Whether a terminal would only display the text: no control characters, neither of the first set nor of the
// second in UTF-8.
bool is_printable(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f) return false;
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) return false;
  }
  return true;
}

// `lot`: output takes long to make, so only some inputs do, in a way that the fuzzer cannot choose.
void check_display(Choices& choices, uint32_t lot) {
  control::AgentStatus status;
  status.links.resize(1);
  status.links[0].link.name = "rxe_a";
  for (uint32_t slots = 1 + choices.below(3); slots > 0; --slots) {
    control::SlotStatus slot;
    slot.index = choices.byte();
    slot.pid = static_cast<pid_t>(choices.below(3));
    slot.uid = choices.below(2);
    char name[protocol::kProgramBytes];
    choices.fill(name);
    slot.program = load_text(name);
    const Page page(choices, slot.index);
    max_read = 0;
    control::read_status_page(3, slot, choices.yes() ? control::QpChoice::kAll : control::QpChoice::kInUse);
    VERBENA_REQUIRE(max_read <= sizeof(StatusPage) + sizeof(uint64_t));
    VERBENA_REQUIRE(slot.qps.size() <= protocol::kQpsPerSlot);
    status.slots.push_back(std::move(slot));
  }
  if (lot % 8 == 0) VERBENA_REQUIRE(is_printable(commands::status_as_text(status)));
  if (lot % 128 == 0) VERBENA_REQUIRE(nlohmann::json::accept(commands::status_as_json(status)));
}

void check_sending_qps(Choices& choices) {
  commands::SendingQps qps((UniqueFd()));
  TimePoint now{std::chrono::hours(1)};
  const Page page(choices, 1);
  while (!choices.empty()) {
    now += std::chrono::milliseconds(choices.byte());
    qps.that_sends_to(roce::Qpn(choices.byte()), now);
  }
}

}  // namespace
}  // namespace verbena

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena;
  static Counting counting;
  Choices choices(data, size);
  switch (choices.below(8)) {
    case 0:
      check_display(choices, std::accumulate(data, data + size, 0u));
      break;
    case 1:
      check_sending_qps(choices);
      break;
    case 2:
      counting.forge(choices);
      break;
    default:
      counting.run(choices);
  }
  return 0;
}
