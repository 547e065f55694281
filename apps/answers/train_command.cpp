// answers train
#include <nlohmann/json.hpp>

#include "apps/answers/train.h"
#include "apps/common/format.h"
#include "apps/common/training_run.h"

namespace cairn::answers {

using Json = nlohmann::ordered_json;

void train_command(CommandLine& line) {
  Settings settings;
  settings.fields(line);
  run_training(
      line,
      "  answers train --data questions.jsonl --model model --out run\n"
      "  answers train --out run --resume",
      [&](const Run& run) {
        check<UsageError>(!settings.data.empty(), "expected --data with questions; debian_questions.py writes them");
        check<UsageError>(!settings.model.empty(), "expected --model with the folder of a BERT model");
        return train(run, settings);
      },
      [](const Json& result) {
        return formatted("On dev, of %zu questions: exact match %.1f%%, F1 %.1f%%, right entry %.1f%%\n",
                         result.at("questions").get<size_t>(), 100 * result.at("exact_match").get<double>(),
                         100 * result.at("f1").get<double>(), 100 * result.at("right_entry").get<double>());
      });
}

}  // namespace cairn::answers
