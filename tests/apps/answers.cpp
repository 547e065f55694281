// How answers are scored.
#include <vector>

#include "apps/answers/model.h"
#include "tests/catch.h"

using namespace cairn;
using answers::Question;

namespace {

// Tokens 3 to 9 are entry 0, 10 to 59 entry 1, which is asked for; its name is tokens 10 to 12.
answers::Score scored(int64_t begin, int64_t last, int64_t answer_tokens = 32) {
  const Question question{
      .tokens = std::vector<int32_t>(61), .entries = {3, 10, 60}, .right = 1, .begin = 10, .end = 13, .source = ""};
  std::vector<float> begins(61), ends(61);
  begins[0] = ends[60] = 9;  // outside the passage: never an answer
  begins[size_t(begin)] = ends[size_t(last)] = 1;
  return answers::score(question, begins.data(), ends.data(), answer_tokens);
}

}  // namespace

TEST_CASE("answers: the likeliest span is scored by its positions and its entry", "[answers]") {
  const auto check = [](const answers::Score& found, double exact, double f1, double entry) {
    CHECK(found.exact == exact);
    CHECK(found.f1 == Approx(f1));
    CHECK(found.entry == entry);
  };
  check(scored(10, 12), 1, 1, 1);
  check(scored(10, 14), 0, 2.0 * 3 / (5 + 3), 1);
  check(scored(11, 12), 0, 2.0 * 2 / (2 + 3), 1);
  check(scored(20, 22), 0, 0, 1);
  check(scored(3, 9), 0, 0, 0);
  check(scored(8, 11), 0, 2.0 * 2 / (4 + 3), 0);
  check(scored(10, 41), 0, 2.0 * 3 / (32 + 3), 1);
  check(scored(10, 42), 0, 2.0 * 1 / (1 + 3), 1);  // 33 tokens are too many: the first token alone is as likely
  check(scored(10, 42, 33), 0, 2.0 * 3 / (33 + 3), 1);
}
