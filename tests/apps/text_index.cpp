// Damaged indexes, and files that are no index. (text_search.txt makes and searches an index as a user does.)
#include "apps/text_search/index.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/io/io_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a damaged index, or a file that is no index, is rejected", "[text_search]") {
  const TemporaryFolder folder;
  Index index{"fingerprint", "full", 1, "model", true, {}};
  index.records = {{"/a", 1, 2, "one\ntext", Tensor::of<float>({0.6f, 0.8f})},
                   {"/b", 1, 1, "another", {}},
                   {"/c", 3, 3, "it", Tensor::of<float>({0, 1})}};
  write_index(folder / "index", index);
  CHECK(read_index(folder / "index").records.size() == 2);  // the records with a row

  const auto refused = [&](const std::string& message, const std::function<void(TensorFile&)>& damage) {
    TensorFile file = read_safetensors(folder / "index");
    damage(file);
    write_safetensors(folder / "damaged", file);
    CHECK_THAT(data_error([&] { read_index(folder / "damaged"); }), ContainsSubstring(message));
  };
  const auto tensor = [](TensorFile& file, const std::string& name) -> Tensor& {
    const auto found =
        std::find_if(file.tensors.begin(), file.tensors.end(), [&](const auto& each) { return each.first == name; });
    REQUIRE(found != file.tensors.end());
    return found->second;
  };
  refused("not an index", [](TensorFile& f) { f.metadata.clear(); });
  refused("its metadata lacks a key", [](TensorFile& f) { f.metadata["index"] = R"({"format":"another"})"; });
  refused("row 2 does", [&](TensorFile& f) { tensor(f, "embeddings").mutable_data<float>()[3] = NAN; });
  refused("got 1 for 2", [&](TensorFile& f) { tensor(f, "embeddings") = tensor(f, "embeddings").slice(0, 1); });
  refused("passage 1", [&](TensorFile& f) { tensor(f, "passages").mutable_data<uint8_t>()[0] = '['; });
  refused("damaged", [&](TensorFile& f) {
    const std::string line = R"({"path":"/a","line":-1,"last_line":1,"text":""})";
    tensor(f, "passages") = Tensor::from(std::vector<uint8_t>(line.begin(), line.end()), {int64_t(line.size())});
    tensor(f, "embeddings") = tensor(f, "embeddings").slice(0, 1);
  });
}
