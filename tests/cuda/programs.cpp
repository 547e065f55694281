// Programs with --device cuda.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "apps/common/run_folder.h"
#include "nn/io/file.h"
#include "tests/apps/process.h"
#include "tests/catch.h"
#include "tests/io/io_test.h"
#include "tests/tolerances.h"

using namespace cairn;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string small =
    "train --length 5 --layers 1 --heads 2 --head-size 8 --feed-forward 16 --batch 3 --evaluate-every 100 --sequences "
    "8 ";

Json result_of(const ProcessResult& process) {
  INFO(process.err);
  REQUIRE(process.exit_code == 0);
  return Json::parse(last_line(process.out));
}

// Ten steps on CUDA have the losses of the CPU.
void check_losses(const char* program, const std::string& settings) {
  INFO(program);
  const TemporaryFolder cpu, cuda;
  const std::string arguments = settings + " --attention full --iterations 10 --json --quiet --out ";
  result_of(run_process(program, arguments + cpu.path().string() + " --device cpu"));
  result_of(run_process(program, arguments + cuda.path().string() + " --device cuda"));
  const auto expected = RunFolder(cpu.path(), {}).lines(), found = RunFolder(cuda.path(), {}).lines();
  REQUIRE(expected.size() == 10);
  REQUIRE(found.size() == 10);
  for (size_t i = 0; i < 10; ++i) {
    const double loss = expected[i].at("loss");
    CHECK(std::abs(found[i].at("loss").get<double>() - loss) <= tolerance::losses * loss);
  }
}

}  // namespace

TEST_CASE("programs on CUDA follow the losses of the CPU", "[gpu][program]") {
  const TemporaryFolder data;
  const std::string tiny = " --layers 1 --heads 2 --head-size 8 --feed-forward 16 --batch 3";
  check_losses("copy-task", small);
  std::string text;
  for (int i = 0; i < 300; ++i) text += std::to_string(i * i);
  replace_file(data / "text", {text});
  check_losses("language-model", concat("train --context 8 --text ", data / "text", tiny));
  for (const char* part : {"train", "t10k"}) {  // 8 images of 28 x 28
    std::string images("\0\0\x08\3\0\0\0\x08\0\0\0\x1c\0\0\0\x1c", 16), classes("\0\0\x08\1\0\0\0\x08", 8);
    for (int i = 0; i < 8 * 28 * 28; ++i) images += char(i * i);
    replace_file(data / concat(part, "-images-idx3-ubyte"), {images});
    replace_file(data / concat(part, "-labels-idx1-ubyte"), {classes + std::string("\0\1\2\3\4\5\6\7", 8)});
  }
  check_losses("pixels", concat("train --patch 7 --data ", data.path(), tiny));
}

TEST_CASE("a run on CUDA resumes bit for bit", "[gpu][program]") {
  const TemporaryFolder whole, parts;
  const std::string arguments = small + "--attention i-clustered-3:topk=4 --dropout 0.1 --json --quiet --device cuda ";
  result_of(run_process("copy-task", arguments + "--iterations 9 --out " + whole.path().string()));
  result_of(run_process("copy-task", arguments + "--iterations 5 --out " + parts.path().string()));
  result_of(run_process("copy-task",
                        "train --device cuda --iterations 9 --resume --json --quiet --out " + parts.path().string()));
  for (const char* file : {"checkpoint/weights.safetensors", "checkpoint/optimizer.safetensors"})
    CHECK(read_file(whole.path() / file) == read_file(parts.path() / file));
}

TEST_CASE("a run goes on with another device", "[gpu][program]") {
  const TemporaryFolder run;
  result_of(
      run_process("copy-task", small + "--iterations 2 --json --quiet --device cuda --out " + run.path().string()));
  const Json result = result_of(run_process(
      "copy-task", "train --device cpu --iterations 4 --resume --json --quiet --out " + run.path().string()));
  CHECK(result.at("iterations") == 4);
}

TEST_CASE("precisions that the CPU does not have", "[gpu][program]") {
  const ProcessResult refused = run_process("copy-task", small + "--device cpu --precision bf16 --quiet");
  CHECK(refused.exit_code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("--precision bf16: the CPU computes in float32"));
  for (const char* precision : {"tf32", "bf16"})
    result_of(run_process("copy-task", small + "--iterations 4 --json --quiet --device cuda --precision " + precision));
}

#if CAIRN_CUDA_HOST
TEST_CASE("where the device's memory does not suffice copy-task says so in one line", "[gpu][program]") {
  const std::string arguments = small + "--attention full --iterations 5 --json --quiet --device cuda --batch ";
  const auto refused = [&](const std::string& batch, const std::string& limit, const std::string& why) {
    const ProcessResult process = run_process("copy-task", arguments + batch, limit);
    INFO(process.err);
    CHECK(process.exit_code == 4);
    CHECK(process.out.empty());
    CHECK(std::count(process.err.begin(), process.err.end(), '\n') == 1);
    CHECK_THAT(process.err, ContainsSubstring("error: out of memory on cuda: ") && ContainsSubstring(why));
  };
  refused("4000", "CAIRN_HOST_CUDA_MEMORY=4000000 ", " bytes requested, ");
  refused("3", "CAIRN_HOST_CUDA_MEMORY=20000 ", "reduce --layers");
  result_of(run_process("copy-task", arguments + "3", "CAIRN_HOST_CUDA_MEMORY=4000000 "));
}
#endif
