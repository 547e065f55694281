// answers: a pretrained BERT learns to answer questions, and then answers with other attention (the paper's section
// 4.3).
#include "apps/common/program.h"

namespace cairn::answers {
// Each is in its <command>_command.cpp.
std::unique_ptr<Command> make_train();
std::unique_ptr<Command> make_compare();
}  // namespace cairn::answers

int main(int argc, char** argv) {
  return cairn::run_program("answers", "Answer questions with a pretrained BERT, whose attention can be replaced.",
                            "Examples:\n"
                            "  apps/answers/debian_questions.py --model model questions.jsonl\n"
                            "  answers train --data questions.jsonl --model model --out run\n"
                            "  answers compare --runs run\n",
                            {cairn::answers::make_train, cairn::answers::make_compare}, argc, argv);
}
