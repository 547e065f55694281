#pragma once
namespace CLI {
class App;
}

namespace cairn::attention_bench {

void define_run(CLI::App& app);
void define_figure(CLI::App& app);

}  // namespace cairn::attention_bench
