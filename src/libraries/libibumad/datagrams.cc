// SPDX-License-Identifier: Apache-2.0
// Functions about a datagram's header, such as umad_set_addr(3), umad_set_grh(3) and umad_dump(3), and names
// of numbers in datagrams: umad_class_str(3) and related functions.
#include <atomic>
#include <cstdarg>

#include <unistd.h>

#include "base/c_abi.h"
#include "libraries/libibumad/umad.h"

namespace verbena::umad {
namespace {

constinit std::atomic<int> level{0};

}  // namespace

int debug_level() {
  return level.load(std::memory_order_relaxed);
}

void say(const char* function, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "ibwarn: [%d] %s: %s\n", ::getpid(), function, text);
}

}  // namespace verbena::umad

VERBENA_ABI int umad_debug(int wanted) {
  if (wanted >= 0) verbena::umad::level.store(wanted, std::memory_order_relaxed);
  return verbena::umad::debug_level();
}

namespace {

using verbena::byteswap;
using verbena::umad::say;

ib_user_mad& at(void* umad) {
  return *static_cast<ib_user_mad*>(umad);
}

}  // namespace

VERBENA_ABI void* umad_get_mad(void* umad) {
  return at(umad).data;
}

VERBENA_ABI size_t umad_size() {
  return sizeof(ib_user_mad);
}

VERBENA_ABI int umad_status(void* umad) {
  return static_cast<int>(at(umad).status);
}

VERBENA_ABI ib_mad_addr_t* umad_get_mad_addr(void* umad) {
  return &at(umad).addr;
}

// Unlike the other fields, the flow label is in host byte order.
VERBENA_ABI int umad_set_grh(void* umad, void* address) {
  ib_mad_addr& to = at(umad).addr;
  to.grh_present = address != nullptr;
  if (address == nullptr) return 0;
  const auto& from = *static_cast<const ib_mad_addr*>(address);
  std::memcpy(to.gid, from.gid, sizeof to.gid);
  to.flow_label = byteswap(from.flow_label);
  to.hop_limit = from.hop_limit;
  to.traffic_class = from.traffic_class;
  return 0;
}

VERBENA_ABI int umad_set_pkey(void* umad, int index) {
  at(umad).addr.pkey_index = static_cast<uint16_t>(index);
  return 0;
}

VERBENA_ABI int umad_get_pkey(void* umad) {
  return at(umad).addr.pkey_index;
}

VERBENA_ABI int umad_set_addr_net(void* umad, __be16 lid, __be32 qp, int sl, __be32 qkey) {
  ib_mad_addr& to = at(umad).addr;
  to.lid = lid;
  to.qpn = qp;
  to.qkey = qkey;
  to.sl = static_cast<uint8_t>(sl);
  return 0;
}

VERBENA_ABI int umad_set_addr(void* umad, int lid, int qp, int sl, int qkey) {
  return umad_set_addr_net(umad, byteswap(static_cast<uint16_t>(lid)), byteswap(static_cast<uint32_t>(qp)),
                           sl, byteswap(static_cast<uint32_t>(qkey)));
}

VERBENA_ABI void umad_addr_dump(ib_mad_addr_t* address) {
  char gid[2 * sizeof address->gid + 1];
  for (size_t i = 0; i < sizeof address->gid; ++i) std::snprintf(&gid[2 * i], 3, "%02x", address->gid[i]);
  say(__func__,
      "qpn %d qkey 0x%x lid %u sl %d\n"
      "grh_present %d gid_index %d hop_limit %d traffic_class %d flow_label 0x%x pkey_index 0x%x\n"
      "Gid 0x%s",
      static_cast<int>(byteswap(address->qpn)), byteswap(address->qkey), byteswap(address->lid), address->sl,
      address->grh_present, address->gid_index, address->hop_limit, address->traffic_class,
      address->flow_label, address->pkey_index, gid);
}

VERBENA_ABI void umad_dump(void* umad) {
  say(__func__, "agent id %d status %x timeout %d", static_cast<int>(at(umad).agent_id), at(umad).status,
      static_cast<int>(at(umad).timeout_ms));
  umad_addr_dump(&at(umad).addr);
}

namespace {

struct Name {
  unsigned number;
  const char* text;
};

constexpr const char* kUnknown = "<unknown>";

const char* find(std::span<const Name> names, unsigned number, const char* otherwise) {
  for (const Name& each : names) {
    if (each.number == number) return each.text;
  }
  return otherwise;
}

enum Class : uint8_t {
  kSubnLid = 0x01,
  kSubnAdministration = 0x03,
  kConnection = 0x07,
  kSubnDirected = 0x81,
};

constexpr Name kClasses[] = {
    {kSubnLid, "Subn"},
    {kSubnDirected, "Subn"},
    {kSubnAdministration, "SubnAdm"},
    {0x04, "Perf"},
    {0x05, "BM"},
    {0x06, "DevMgt"},
    {kConnection, "ComMgt"},
    {0x08, "SNMP"},
    {0x10, "DevAdm"},
    {0x11, "BootMgt"},
    {0x12, "BIS"},
    {0x21, "CongestionManagment"},
};

// Exactly libibumad's texts: programs compare and print them.
constexpr Name kMethods[] = {
    {0x01, "Get"},  {0x02, "Set"},    {0x81, "GetResp"},    {0x03, "Send"},
    {0x05, "Trap"}, {0x06, "Report"}, {0x86, "ReportResp"}, {0x07, "TrapRepress"},
};
constexpr Name kAdministrationMethods[] = {
    {0x12, "GetTable"}, {0x92, "GetTableResp"}, {0x15, "Delete"},        {0x95, "DeleteResp"},
    {0x14, "GetMulti"}, {0x94, "GetMultiResp"}, {0x13, "GetTraceTable"},
};

constexpr Name kStatuses[] = {
    {1u << 2, "Bad Version"},
    {2u << 2, "Method not supported"},
    {3u << 2, "Method/Attribute combo not supported"},
    {7u << 2, "Invalid attribute/modifier field"},
};
constexpr Name kAdministrationStatuses[] = {
    {0, "Success"},
    {1, "No Resources"},
    {2, "Request Invalid"},
    {3, "No Records"},
    {4, "Too Many Records"},
    {5, "Invalid GID"},
    {6, "Insufficient Components"},
    {7, "Request Denied"},
    {8, "Priority Suggested"},
};

constexpr Name kAttributes[] = {{0x01, "Class Port Info"}, {0x02, "Notice"}, {0x03, "Inform Info"}};
constexpr Name kSubnAttributes[] = {
    {0x0010, "NodeDescription"},
    {0x0011, "NodeInfo"},
    {0x0012, "SwitchInfo"},
    {0x0014, "GUIDInfo"},
    {0x0015, "PortInfo"},
    {0x0016, "P_KeyTable"},
    {0x0017, "SLtoVLMappingTable"},
    {0x0018, "VLArbitrationTable"},
    {0x0019, "LinearForwardingTable"},
    {0x001A, "RandomForwardingTable"},
    {0x001B, "MulticastForwardingTable"},
    {0x001C, "LinkSpeedWidthPairsTable"},
    {0x001D, "VendorSpecificMadsTable"},
    {0x001E, "HierarchyInfo"},
    {0x0020, "SMInfo"},
    {0x0030, "VendorDiag"},
    {0x0031, "LedInfo"},
    {0x0032, "CableInfo"},
    {0x0033, "PortInfoExtended"},
};
constexpr Name kAdministrationAttributes[] = {
    {0x0011, "NodeRecord"},
    {0x0012, "PortInfoRecord"},
    {0x0013, "SLtoVLMappingTableRecord"},
    {0x0014, "SwitchInfoRecord"},
    {0x0015, "LinearForwardingTableRecord"},
    {0x0016, "RandomForwardingTableRecord"},
    {0x0017, "MulticastForwardingTableRecord"},
    {0x0018, "SMInfoRecord"},
    {0x0019, "LinkSpeedWidthPairsTableRecord"},
    {0x0020, "LinkRecord"},
    {0x0030, "GuidInfoRecord"},
    {0x0031, "ServiceRecord"},
    {0x0033, "P_KeyTableRecord"},
    {0x0035, "PathRecord"},
    {0x0036, "VLArbitrationTableRecord"},
    {0x0038, "MCMemberRecord"},
    {0x0039, "TraceRecord"},
    {0x003A, "MultiPathRecord"},
    {0x003B, "ServiceAssociationRecord"},
    {0x003C, "HierarchyInfoRecord"},
    {0x003D, "CableInfoRecord"},
    {0x003E, "PortInfoExtendedRecord"},
    {0x00F3, "InformInfoRecord"},
};
constexpr Name kConnectionAttributes[] = {
    {0x0010, "ConnectRequest"},
    {0x0011, "MsgRcptAck"},
    {0x0012, "ConnectReject"},
    {0x0013, "ConnectReply"},
    {0x0014, "ReadyToUse"},
    {0x0015, "DisconnectRequest"},
    {0x0016, "DisconnectReply"},
    {0x0017, "ServiceIDResReq"},
    {0x0018, "ServiceIDResReqResp"},
    {0x0019, "LoadAlternatePath"},
    {0x001A, "AlternatePathResponse"},
    {0x001B, "SuggestAlternatePath"},
    {0x001C, "SuggestPathResponse"},
};

std::span<const Name> attributes_of(uint8_t management_class) {
  switch (management_class) {
    case kSubnLid:
    case kSubnDirected:
      return kSubnAttributes;
    case kSubnAdministration:
      return kAdministrationAttributes;
    case kConnection:
      return kConnectionAttributes;
    default:
      return {};
  }
}

}  // namespace

VERBENA_ABI const char* umad_class_str(uint8_t management_class) {
  const bool is_vendors = (management_class >= 0x09 && management_class <= 0x0f) ||
                          (management_class >= 0x30 && management_class <= 0x4f);
  const bool is_application = management_class >= 0x10 && management_class <= 0x2f;
  const char* const otherwise = is_vendors ? "Vendor" : is_application ? "Application" : kUnknown;
  return find(kClasses, management_class, otherwise);
}

// The closing bracket is missing in libibumad, too.
VERBENA_ABI const char* umad_method_str(uint8_t management_class, uint8_t method) {
  const char* const common = find(kMethods, method, "<unknown");
  return management_class == kSubnAdministration ? find(kAdministrationMethods, method, common) : common;
}

VERBENA_ABI const char* umad_common_mad_status_str(__be16 status_be) {
  const unsigned status = verbena::byteswap(status_be);
  if ((status & 1) != 0) return "Busy";
  if ((status & 2) != 0) return "Redirection required";
  return find(kStatuses, status & 0x1c, "Success");
}

VERBENA_ABI const char* umad_sa_mad_status_str(__be16 status_be) {
  return find(kAdministrationStatuses, static_cast<unsigned>(verbena::byteswap(status_be)) >> 8,
              "Undefined Error");
}

VERBENA_ABI const char* umad_attribute_str(uint8_t management_class, __be16 attribute_be) {
  const unsigned attribute = verbena::byteswap(attribute_be);
  return find(attributes_of(management_class), attribute, find(kAttributes, attribute, kUnknown));
}
