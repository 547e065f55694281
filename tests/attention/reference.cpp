#include "tests/attention/reference.h"

namespace cairn::reference {

std::map<std::string, Entry>& references() {
  static std::map<std::string, Entry> all{
      {"full", {full, true, true, true, true}},
      {"shared-full", {full, true, true, false, true}},
      {"clustered", {clustered, false, false, true, true}},
      {"i-clustered", {improved_clustered, false, false, true, true, {"i-clustered-3:topk=1"}}},
      {"oracle-top", {oracle_top, true, true, true, true}},
      {"linear", {linear, false, true, true, true}},
      {"inducing", {inducing, false, false, true, true, {"inducing-1", "inducing-40:scale=0.6"}}},
      {"position", {position, false, false, true, true}},
      {"i-position", {improved_position, false, false, true, true}},
      {"euclidean", {clustered, false, false, true, true}},
      {"i-euclidean", {improved_clustered, false, false, true, true}},
  };
  return all;
}

}  // namespace cairn::reference
