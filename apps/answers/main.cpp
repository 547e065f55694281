// answers: a pretrained BERT learns to answer questions, and then answers with other attention (the paper's section
// 4.3).
#include "apps/common/program.h"

namespace cairn::answers {
// train is in train.cpp, each other one in its <command>_command.cpp.
void train_command(CommandLine& line);
void compare_command(CommandLine& line);
}  // namespace cairn::answers

int main(int argc, char** argv) {
  using namespace cairn::answers;
  return cairn::run_program("answers", "Answer questions with a pretrained BERT, whose attention can be replaced.",
                            "Examples:\n"
                            "  apps/answers/debian_questions.py --model model questions.jsonl\n"
                            "  answers train --data questions.jsonl --model model --out run\n"
                            "  answers compare --runs run\n",
                            {{"train", train_command, "Fine-tune a pretrained BERT on questions"},
                             {"compare", compare_command, "Let trained models answer with other attention"}},
                            argc, argv);
}
