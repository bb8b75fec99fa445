// SPDX-License-Identifier: Apache-2.0
#include "network/options.h"

namespace verbena::network {
namespace {

using net::LinkSettings;

struct RateOption {
  const char* name;
  uint64_t LinkSettings::*setting;
  const char* text;
};
constexpr RateOption kRates[] = {
    {"--rate", &LinkSettings::bytes_per_second,
     "Megabits a second; without it there is no limit, and no queue"},
    {"--other-rate", &LinkSettings::other_bytes_per_second,
     "With --rate-turn: the rate of every other turn. 0, the default: nothing moves then"},
};

struct BytesOption {
  const char* name;
  uint64_t LinkSettings::*setting;
  const char* text;
};
constexpr BytesOption kSizes[] = {
    {"--queue", &LinkSettings::queue_bytes, "Bytes that wait in front of --rate; what finds no room is lost"},
    {"--mark-above", &LinkSettings::mark_above_bytes,
     "Packets that find more than so many bytes in the queue are marked (ECN), if they are ECN-capable"},
};

struct TimeOption {
  const char* name;
  Duration LinkSettings::*setting;
  const char* text;
};
constexpr TimeOption kTimes[] = {
    {"--rate-turn", &LinkSettings::rate_turn, "--rate holds for so long, then --other-rate, and so on"},
    {"--delay", &LinkSettings::delay, "One way"},
    {"--jitter", &LinkSettings::jitter, "Up to so much delay besides; the order is kept"},
    {"--jitter-every", &LinkSettings::jitter_every,
     "How long one draw of --jitter lasts; 0, the default: a packet"},
    {"--detour", &LinkSettings::detour,
     "How long after their time --late packets and second copies come, at most"},
    {"--burst-every", &LinkSettings::burst_every, "Losses that come together: how often"},
    {"--burst-length", &LinkSettings::burst_length, "For how long"},
};

struct ChanceOption {
  const char* name;
  uint32_t LinkSettings::*setting;
  const char* text;
};
constexpr ChanceOption kChances[] = {
    {"--loss", &LinkSettings::loss, "Lost on the wire"},
    {"--duplicate", &LinkSettings::duplication, "Comes twice"},
    {"--corrupt", &LinkSettings::corruption,
     "Comes with one bit of its IP packet flipped, after checksums were taken: what a checksum covers, it "
     "finds"},
    {"--early", &LinkSettings::early, "Comes without the delay, before all that are under way"},
    {"--late", &LinkSettings::late, "Comes late, so that others pass it"},
    {"--burst-loss", &LinkSettings::burst_loss, "Lost while a burst lasts"},
    {"--bad-begins", &LinkSettings::bad_begins,
     "Losses that come together (Gilbert): a packet is the first of them"},
    {"--bad-ends", &LinkSettings::bad_ends, "It is the last"},
    {"--bad-loss", &LinkSettings::bad_loss, "Lost in between; 1 by default"},
};

constexpr double kBytesOfMegabit = 125'000;
constexpr double kNanosecondsOfMillisecond = 1e6;
constexpr double kMillion = 1e6;

template <class Value>
void add(CLI::App& app, const char* name, Value& value, double unit, const char* text,
         const CLI::Validator& valid, const char* what) {
  app.add_option_function<double>(
         name, [&value, unit](double given) { value = Value(static_cast<int64_t>(given * unit + 0.5)); },
         text)
      ->check(valid)
      ->type_name(what);
}

}  // namespace

LinkSettings Options::link_from(int device) const {
  if (device == 0 || !one_way) return link;
  LinkSettings back = link;
  const LinkSettings harmless;
  for (const ChanceOption& chance : kChances) back.*chance.setting = harmless.*chance.setting;
  back.jitter = harmless.jitter;
  back.mark_above_bytes = harmless.mark_above_bytes;
  return back;
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("FIRST", options.devices[0], "Name of a device to be made")->required();
  app.add_option("SECOND", options.devices[1], "Name of the other one")->required();
  LinkSettings& link = options.link;
  const CLI::Range not_negative(0.0, 1e12);
  const CLI::Range chance(0.0, 1.0);
  for (const RateOption& rate : kRates) {
    add(app, rate.name, link.*rate.setting, kBytesOfMegabit, rate.text, not_negative, "MBIT/S");
  }
  for (const BytesOption& size : kSizes) {
    app.add_option(size.name, link.*size.setting, size.text)->type_name("BYTES");
  }
  for (const TimeOption& time : kTimes) {
    add(app, time.name, link.*time.setting, kNanosecondsOfMillisecond, time.text, not_negative, "MS");
  }
  for (const ChanceOption& share : kChances) {
    add(app, share.name, link.*share.setting, kMillion, share.text, chance, "SHARE");
  }
  app.add_option("--mtu", link.mtu, "Larger IP packets do not go through; the sender is told, as by a router")
      ->type_name("BYTES");
  app.add_flag_callback(
      "--silent-mtu", [&options] { options.direction.answer_too_large = false; }, "The sender is not told");
  app.add_flag(
      "--one-way", options.one_way,
      "No harm comes to packets from SECOND to FIRST: they have --rate, --queue, --delay, --mtu only");
  app.add_option("--seed", options.seed, "Of all that is left to chance");
  add(app, "--join", options.direction.join, kNanosecondsOfMillisecond / 1000,
      "Segments of one frame that arrive within such a time are handed over as one; 40 by default",
      not_negative, "US");
}

}  // namespace verbena::network
