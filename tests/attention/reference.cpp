#include "tests/attention/reference.h"

namespace cairn::reference {

std::map<std::string, Entry>& references() {
  static std::map<std::string, Entry> all{
      {"full", {full, true, true, true, true}},
      {"shared-full", {full, true, true, false, true}},
      {"clustered", {clustered, false, false, true, true}},
      {"i-clustered", {improved_clustered, false, false, true, true, {"i-clustered-3:topk=1"}}},
      {"oracle-top", {oracle_top, true, true, true, true}},
      {"local", {local, true, true, false}},
      {"longformer", {longformer, true, true, false, false, {"longformer-1:global=6"}}},
      {"strided", {strided, true, true, false, false, {"strided-2147483647"}}},
  };
  return all;
}

}  // namespace cairn::reference
