#pragma once
// The commands of speech.
#include <memory>

#include "apps/common/command.h"

namespace cairn::speech {

std::unique_ptr<Command> make_prepare();
std::unique_ptr<Command> make_train();
std::unique_ptr<Command> make_evaluate();
std::unique_ptr<Command> make_transcribe();

}  // namespace cairn::speech
