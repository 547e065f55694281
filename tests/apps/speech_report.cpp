#include <nlohmann/json.hpp>

#include "apps/speech/report.h"
#include "apps/speech/train.h"
#include "tests/apps/process.h"
#include "tests/catch.h"
#include "tests/io/io_test.h"

using namespace cairn;          // NOLINT: tests only
using namespace cairn::speech;  // NOLINT: tests only

TEST_CASE("purity counts the positions of the most frequent phone of their cluster", "[speech]") {
  // The phones at the middle frames 1, 3, 5, 7, 9 and, beyond the end, 10: 5 0 5 0 5 7.
  const std::vector<int32_t> alignment{9, 5, 9, 0, 9, 5, 9, 0, 9, 5, 7};
  Purity purity;
  purity.add({1, 0, 1, 0, 1, 0}, alignment, 2);  // clusters 5 5 5 and 0 0 7; runs 5 0 5 and 0 5 7
  CHECK((purity.positions == 6 && purity.clusters == 5 && purity.runs == 3));
  purity.add({0, 1, 2, 3, 4, 5}, alignment, 2);  // adds; a position alone is pure
  CHECK((purity.positions == 12 && purity.clusters == 11 && purity.runs == 9));
}

TEST_CASE("speech: reports are well-formed", "[speech]") {
  for (const char* attention : {"full", "i-clustered-3:topk=2", "lsh-1"})
    for (const bool is_aligned : {false, true}) {
      INFO(attention << (is_aligned ? " aligned" : ""));
      Settings settings;
      settings.model.layers = settings.model.heads = 2;
      settings.model.head_size = settings.model.feed_forward = 8;
      settings.model.attention = attention;
      settings.init = Settings::Start::plain;
      settings.join = 2;
      const Sentence sentence{"<a>", Tensor::zeros({50, 40}), {1, 2, 2}, std::vector<int32_t>(is_aligned ? 50 : 0, 2)};
      const std::vector<float> ones(40, 1);
      const Corpus data{{{"a", "&"}, ones, ones}, {{"train", {sentence}}, {"dev", {sentence, sentence, sentence}}}};
      const TrainingData parts(data, settings);
      Generator generator(1);
      Model model(settings, data.front_end.filterbanks(), data.front_end.classes(), generator);
      const TemporaryFolder folder;
      RunFolder run(folder.path(), {{"a", "<b>"}});
      const auto page_of = [&](const Json& result) {
        write_report(run, {}, result, settings, parts, model);
        return bytes_of_file(folder / "report.html");
      };
      const auto says = [](const std::string& page, const char* text) { return page.find(text) != std::string::npos; };
      const std::string first = page_of({});
      CHECK((says(first, "interrupted after 0 steps") && says(first, "last evaluation")));
      run.append({{"step", 1}, {"loss", 9.5}, {"evaluation", {{"loss", 3}, {"phone_error_rate", nullptr}}}});
      const std::string page = page_of({{"loss", 3}, {"phone_error_rate", 0.25}, {"best_step", 1}});
      CHECK(markup_error(page.substr(page.find("<html"))) == "");
      CHECK((says(page, "25%") && says(page, "In dev there are 9 phones") && !says(page, "interrupted")));
      CHECK(says(page, "runs of positions") == (is_aligned && says(attention, "clustered")));
      for (const char* bad : {" nan", "nan ", "\"nan", "Mnan", "Lnan", ">nan"}) CHECK(!says(page, bad));
    }
}
