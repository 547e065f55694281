#include "tests/attention/reference.h"

namespace cairn::reference {

const std::map<std::string, Reference>& references() {
  static const std::map<std::string, Reference> all{
      {"full", full},
      {"shared-full", full},
      {"clustered", clustered},
      {"i-clustered", improved_clustered},
      {"oracle-top", oracle_top},
  };
  return all;
}

}  // namespace cairn::reference
