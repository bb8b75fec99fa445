// SPDX-License-Identifier: Apache-2.0
#include "verbs/active_provider.h"

namespace verbena::verbs {

provider::Provider& active_provider() {
  return adapter::software_adapter();
}

}  // namespace verbena::verbs
