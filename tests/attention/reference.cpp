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
      // Not with its queries: equal buckets are sorted by position.
      {"lsh",
       {lsh,
        true,
        true,
        false,
        false,
        {"lsh-1:chunk=5,buckets=2", "lsh-3:chunk=3,bucket_mask=false,deduplicate=true",
         "lsh-2:chunk=2,combine=mean,scale=1"}}},
      {"local", {local, true, true, false}},
      {"longformer", {longformer, true, true, false, false, {"longformer-1:global=6"}}},
      {"strided", {strided, true, true, false, false, {"strided-2147483647"}}},
  };
  return all;
}

}  // namespace cairn::reference
