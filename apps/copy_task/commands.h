#pragma once
// The commands of copy-task. Each define_* adds one to the program.
namespace CLI {
class App;
}

namespace cairn::copy_task {

void define_train(CLI::App& app);
void define_evaluate(CLI::App& app);
void define_show(CLI::App& app);
void define_figure(CLI::App& app);

}  // namespace cairn::copy_task
